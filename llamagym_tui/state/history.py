"""The state of a run after its logged events, made by the reducer that the live screen uses, too.

The events are read in small pieces. What a screen needs only while a session goes on, such as the conversation, is left
out.
"""

from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.protocol import events
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.runs import event_log
from llamagym_tui.runs.run_store import EVENTS_FILE
from llamagym_tui.settings import RunConfig
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state, with_history

READ_EVENTS = 64
"""Events that are read at a time, which takes some milliseconds."""
TOLD_ONCE = events.WatchedEvent | events.EpisodeCorrected | events.TurnInspected
"""Events that leave nothing behind after their session."""


class History(event_log.Pieces):
    """A run's state as far as its log has been read, up to the end that the log has now."""

    def __init__(self, run_dir: Path, config: RunConfig) -> None:
        path = run_dir / EVENTS_FILE
        self.size = path.stat().st_size if path.is_file() else 0
        """Bytes of the log."""
        super().__init__(path, end=self.size)
        self.state = initial_state(config)
        self.played_s = 0.0
        """Seconds of all sessions, the loading of the model included."""
        self._session_s = 0.0

    def read_on(self) -> list[AnyEvent]:
        """Read and return up to `READ_EVENTS` more events; a line that is no event ends the history."""
        found = [logged.event for logged in self.some(READ_EVENTS)]
        for event in found:
            # The clock of a new session begins at 0.
            begun = 0.0 if event.at_s < self._session_s else self._session_s
            self.played_s += event.at_s - begun
            self._session_s = event.at_s
            if not isinstance(event, TOLD_ONCE):
                self.state = reduce(self.state, event)
        return found

    def recalled_in(self, state: RunState) -> RunState:
        """The state of a session that has not begun to play, with the run's history before it."""
        past = self.state
        if past.mode != state.mode:
            past = replace(past, recent=())
        return replace(with_history(state, past), prompt_version=past.prompt_version)
