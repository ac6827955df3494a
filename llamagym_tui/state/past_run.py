"""What a run was before it is resumed, read from its own events by the reducer that the live screen has.

Read in small pieces, up to the events of the next session; without the conversation and what that one confirms.
"""

from dataclasses import replace
from pathlib import Path

from llamagym_tui.config import RunConfig
from llamagym_tui.protocol import event_log, events
from llamagym_tui.run_store import EVENTS_FILE
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state, with_history

READ_EVENTS = 64
"""Events that are read at once: some milliseconds."""
TOLD_ONCE = events.WatchedEvent | events.EpisodeCorrected | events.TurnInspected
"""Events of which nothing outlives their session."""


class PastRun(event_log.Pieces):
    """The events of a run's earlier sessions, as far as they have been read."""

    def __init__(self, config: RunConfig) -> None:
        """A run of which nothing has been read yet; made before its next session begins."""
        path = Path(config.run_dir) / EVENTS_FILE
        super().__init__(path, end=path.stat().st_size if path.is_file() else 0)
        self._state = initial_state(config)

    def read_on(self) -> None:
        """Read `READ_EVENTS` more; at a line that is no event the past ends."""
        for logged in self.some(READ_EVENTS):
            if not isinstance(logged.event, TOLD_ONCE):
                self._state = reduce(self._state, logged.event)

    def recalled_in(self, state: RunState) -> RunState:
        """The state of a session that has not begun to play, with what the run was before it."""
        past = self._state
        if past.mode != state.mode:
            past = replace(past, recent=())
        return replace(with_history(state, past), prompt_version=past.prompt_version)
