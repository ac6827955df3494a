"""The state of a run before it is resumed, made from its own events by the reducer that the live screen uses, too.

The events are read in small pieces, up to those of the next session. What the screen only needs while a session goes
on, as the conversation, is left out.
"""

from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.config import RunConfig
from llamagym_tui.protocol import event_log, events
from llamagym_tui.run_store import EVENTS_FILE
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state, with_history

READ_EVENTS = 64
"""Events that are read at a time, which takes some milliseconds."""
TOLD_ONCE = events.WatchedEvent | events.EpisodeCorrected | events.TurnInspected
"""Events that leave nothing behind after their session."""


class PastRun(event_log.Pieces):
    """The events of a run's earlier sessions, as far as they have been read."""

    def __init__(self, config: RunConfig) -> None:
        """A run of which nothing has been read yet; this is made before its next session begins."""
        path = Path(config.run_dir) / EVENTS_FILE
        super().__init__(path, end=path.stat().st_size if path.is_file() else 0)
        self._state = initial_state(config)

    def read_on(self) -> None:
        """Read `READ_EVENTS` more events; a line that is no event ends the past."""
        for logged in self.some(READ_EVENTS):
            if not isinstance(logged.event, TOLD_ONCE):
                self._state = reduce(self._state, logged.event)

    def recalled_in(self, state: RunState) -> RunState:
        """The state of a session that has not begun to play, with the run's history before it."""
        past = self._state
        if past.mode != state.mode:
            past = replace(past, recent=())
        return replace(with_history(state, past), prompt_version=past.prompt_version)
