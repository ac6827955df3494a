"""A run's log, folded by the reducer that the live screen uses: its state at the end, and at every moment.

A log is read in small pieces, while a screen goes on. A `Recording` keeps a state every `KEYFRAME_EVERY` events, so
that no jump has to read more than what lies between two of them, and follows a run that is still going on.
"""

import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from llamagym_tui.protocol import events
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.runs import event_log
from llamagym_tui.runs.run_store import EVENTS_FILE, is_held, read_config
from llamagym_tui.settings import RunConfig
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state, with_history

MAX_GAP_S = 5.0
"""Most seconds that a silence takes in a recording, so that nobody has to wait for a pause over night."""
KEYFRAME_EVERY = 512
"""Events between two states that are kept for jumping."""
FRAME_ENTRIES = 256
"""Entries of the conversation in each of them, to which one can scroll back after a jump."""
PLAYED_EVENTS = 1_024
"""Most events that are played at a time, which takes some 20 ms; the others follow at the next tick."""
SLOWEST, FASTEST = 0.25, 128.0
"""The speeds of a replay, in seconds of the recording for each second."""
READ_EVENTS = 128
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


class Keyframe(NamedTuple):
    """Everything that is needed to play on from a place."""

    at_s: float
    """Seconds since the recording began, over all sessions of the run, with long silences shortened."""
    stamp_s: float
    """The session's own clock."""
    offset: int
    """Byte in the file of events at which the next event begins."""
    state: RunState

    def time_of(self, event: AnyEvent) -> float:
        """When the next event comes; the clock of a resumed run begins again at 0, and loading takes no time."""
        gap = max(0.0, event.at_s - self.stamp_s)
        if self.state.run is None:
            gap = 0.0
        return self.at_s + min(gap, MAX_GAP_S)

    def after(self, logged: event_log.Logged) -> "Keyframe":
        """The keyframe after the next event."""
        event = logged.event
        return Keyframe(self.time_of(event), event.at_s, logged.end, reduce(self.state, event))


class Recording(event_log.Pieces):
    """The events of a run, as far as they have been read, with some states on the way."""

    def __init__(self, run_dir: str | Path, *, follows: bool = False) -> None:
        """A recording of which nothing has been read yet.

        Args:
            run_dir: folder of the run.
            follows: expect more until the log says that the run has ended, also if no process here holds the folder:
                it may be a copy of another machine's that grows.
        Raises:
            RunStoreError: the folder holds no run.
        """
        self.run_dir = Path(run_dir)
        self._follows = follows
        self._is_held = False
        self.config = read_config(run_dir)
        self.path = self.run_dir / EVENTS_FILE
        super().__init__(self.path)
        opening = replace(
            initial_state(self.config), recorded=True, detail="", run_dir=str(run_dir)
        )
        self._frames = [Keyframe(0.0, 0.0, 0, opening)]
        """The kept states, in order."""
        self._last = self._frames[0]
        """The state after the last event that has been read."""
        self.events = 0
        """The number of events that have been read."""

    @property
    def goes_on(self) -> bool:
        """True if the run was still going on at the last look, so that the recording may grow."""
        has_ended = self._last.state.phase in ("stopped", "failed")
        return not self.fault and (self._is_held or (self._follows and not has_ended))

    @property
    def duration_s(self) -> float:
        """Seconds of the recording that have been read."""
        return self._last.at_s

    @property
    def end(self) -> int:
        """Bytes of the file that have been read."""
        return self._last.offset

    def read_on(self) -> None:
        """Read `READ_EVENTS` more events; a line that is no event ends the recording."""
        for logged in self.some(READ_EVENTS):
            self._last = self._last.after(logged)
            self.events += 1
            if self.events % KEYFRAME_EVERY == 0:
                transcript = self._last.state.transcript.tail(FRAME_ENTRIES)
                state = replace(self._last.state, transcript=transcript)
                self._frames.append(self._last._replace(state=state))

    def look_again(self) -> None:
        """Let `read_on` go on with what was logged in the meantime."""
        self._is_held = is_held(self.run_dir)
        if not self.fault:
            self._unread = event_log.read_from(self.path, self.end)

    def frame_at(self, at_s: float) -> Keyframe:
        """The last kept state at or before a time."""
        # Several events may share a moment: the last keyframe at it is as good as the first.
        after = bisect_right(self._frames, at_s, key=lambda frame: frame.at_s)
        return self._frames[max(0, after - 1)]


class ReplayPlayer:
    """Plays a recording by the clock."""

    def __init__(
        self, recording: Recording, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """A player at the beginning of a recording, which may be read on in the meantime."""
        self.recording = recording
        self.at_s = 0.0
        """Seconds of the recording that have been played."""
        self.playing = True
        """False while it stands still."""
        self.speed = 1.0
        """Seconds of the recording for each second."""
        self._behind = False
        """True if events before the present time have not been played."""
        self._clock = clock
        self._ticked_at = clock()
        self._go_to(recording.frame_at(0.0))

    @property
    def state(self) -> RunState:
        return self._here.state

    @property
    def at_end(self) -> bool:
        """True once everything has been played and nothing more will come."""
        recording = self.recording
        return recording.complete and not recording.goes_on and self.at_s >= recording.duration_s

    def tick(self) -> None:
        """Play what is due by the clock, or what a jump has left; it pauses at the end. Raises as `read_from`."""
        now = self._clock()
        elapsed = now - self._ticked_at
        self._ticked_at = now
        if self.playing:
            self._play_until(min(self.at_s + elapsed * self.speed, self.recording.duration_s))
            self.playing = not self.at_end
        elif self._behind:
            self._play_until(self.at_s)

    def toggle(self) -> None:
        """Pause, or play on; at the end, from the beginning."""
        self.playing = not self.playing
        if self.playing and self.at_end:
            self.jump(0.0)

    def jump(self, at_s: float) -> None:
        """Go to a time; it may take some ticks to play what lies between a kept state and it. Raises as `read_from`."""
        at_s = min(max(at_s, 0.0), self.recording.duration_s)
        frame = self.recording.frame_at(at_s)
        if at_s < self.at_s or frame.offset > self._here.offset:
            self._go_to(frame)
        self._play_until(at_s)

    def change_speed(self, steps: int) -> None:
        """Play twice as fast or, with a negative number of steps, half as fast."""
        self.speed = min(max(self.speed * 2.0**steps, SLOWEST), FASTEST)

    def _go_to(self, frame: Keyframe) -> None:
        """Play on from a kept state."""
        self._here = frame
        self._events = event_log.read_from(self.recording.path, frame.offset)
        self._next: event_log.Logged | None = None

    def _play_until(self, at_s: float) -> None:
        """Play the events up to and at a time, at most `PLAYED_EVENTS`."""
        self.at_s = at_s
        for _ in range(PLAYED_EVENTS):
            coming = self._coming()
            if coming is None or self._here.time_of(coming.event) > at_s:
                self._behind = False
                return
            self._behind = True
            self._here = self._here.after(coming)
            self._next = None

    def _coming(self) -> event_log.Logged | None:
        """The event that is to be played next; None at the end of what has been read."""
        if self._next is None and self._here.offset < self.recording.end:
            self._next = next(self._events, None)
            if self._next is None:
                # Another file has the name by now, as a copy has after each `rsync`.
                self._events = event_log.read_from(self.recording.path, self._here.offset)
                self._next = next(self._events, None)
        return self._next


def clock_text(at_s: float) -> str:
    """Seconds as ``0:42``, ``12:05`` or ``1:02:33``."""
    minutes, seconds = divmod(int(at_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
