"""A recorded run that can be played: its events by their time, and the run's state at every moment.

Reading goes on in small pieces while the beginning is played already; states are kept at `MAX_KEYFRAMES` places at
most, and no jump reads more than the stretch between two of them. A run that goes on is followed.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from llamagym_tui.protocol import event_log, events
from llamagym_tui.protocol.events import AnyEvent
from llamagym_tui.run_store import EVENTS_FILE, is_held, read_config
from llamagym_tui.state.reduce import MAX_MARKS, reduce
from llamagym_tui.state.run import RunState, initial_state

MAX_GAP_S = 5.0
"""Seconds of a recording that a longer silence takes: a pause over night is not waited for."""
MAX_KEYFRAMES = 128
"""States kept for jumping."""
KEYFRAME_EVERY = 256
"""Events between two of them at first; twice as many whenever there are too many of them."""
FRAME_ENTRIES = 256
"""Entries of the conversation in each of them: what one may scroll back to after a jump, at least."""
READ_EVENTS = 256
"""Events that are read at once: some milliseconds."""
PLAYED_EVENTS = 1_024
"""Events that are played at once, some 20 ms; more of them follow at the next tick."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
"""Seconds of the recording for each second."""

TurningPoint = (
    events.RunStarted
    | events.PromptChanged
    | events.ModeChanged
    | events.SettingsChanged
    | events.RolledBack
    | events.WarmStartFinished
)
"""Events at which a run that has begun takes another way, or is resumed."""


class Moment(NamedTuple):
    at_s: float = 0.0
    """Seconds since its beginning, over all sessions of the run, long silences shortened."""
    stamp_s: float = 0.0
    """What the clock of the session showed."""

    def of_next(self, event: AnyEvent) -> "Moment":
        """The moment of the event that follows; the clock of a resumed run begins again at 0."""
        gap = max(0.0, event.at_s - self.stamp_s)
        return Moment(self.at_s + min(gap, MAX_GAP_S), event.at_s)


class Keyframe(NamedTuple):
    """All that playing on from a place needs."""

    moment: Moment
    offset: int
    """Byte in the file of events at which the next one begins."""
    state: RunState

    def after(self, logged: event_log.Logged) -> "Keyframe":
        return Keyframe(
            self.moment.of_next(logged.event), logged.end, reduce(self.state, logged.event)
        )


class Recording(event_log.Pieces):
    def __init__(self, run_dir: str | Path) -> None:
        """A recording of which nothing has been read yet. Raises RunStoreError: the folder holds no run."""
        self.run_dir = Path(run_dir)
        self.config = read_config(run_dir)
        self.path = self.run_dir / EVENTS_FILE
        super().__init__(self.path)
        opening = replace(
            initial_state(self.config), recorded=True, detail="", run_dir=str(run_dir)
        )
        self._frames = [Keyframe(Moment(), 0, opening)]
        self._last = self._frames[0]
        self._every = KEYFRAME_EVERY
        self.events = 0
        self.goes_on = False
        """Whether a process had the run when it was read on last: then its end is not the end of the run."""
        self.said_s = math.inf
        """Seconds at which the first message of the conversation comes; infinite while it is not known."""
        self.turning_points: list[float] = []
        """Seconds at which the run took another way, the latest `MAX_MARKS`."""

    @property
    def duration_s(self) -> float:
        return self._last.moment.at_s

    @property
    def end(self) -> int:
        return self._last.offset

    def read_on(self) -> None:
        """Read `READ_EVENTS` more; at a line that is no event the recording ends."""
        for logged in self.some(READ_EVENTS):
            self._take(logged)

    def look_again(self) -> None:
        """Have what was logged meanwhile read on, too."""
        self.goes_on = not self.fault and is_held(self.run_dir)
        if not self.fault:
            self._unread = event_log.read_from(self.path, self.end)

    def _take(self, logged: event_log.Logged) -> None:
        before, self._last = self._last.state.run, self._last.after(logged)
        self.events += 1
        if isinstance(logged.event, events.ObservationShown):
            self.said_s = min(self.said_s, self.duration_s)
        if isinstance(logged.event, TurningPoint) and before is not None:
            self.turning_points = [*self.turning_points, self.duration_s][-MAX_MARKS:]
        if self.events % self._every:
            return
        talk = self._last.state.transcript.tail(FRAME_ENTRIES)
        self._frames.append(self._last._replace(state=replace(self._last.state, transcript=talk)))
        if len(self._frames) == MAX_KEYFRAMES:
            self._frames = self._frames[::2]
            self._every *= 2

    def frame_at(self, at_s: float) -> Keyframe:
        """The last kept state at or before a time."""
        # Several events may share a moment: the last keyframe at it is as good as the first.
        return self._frames[
            max(0, bisect_right(self._frames, at_s, key=lambda frame: frame.moment.at_s) - 1)
        ]


class Player:
    def __init__(
        self, recording: Recording, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """A player that plays from where something is said first; the recording may be read on meanwhile."""
        self.recording = recording
        self.at_s = 0.0
        """Seconds of the recording that have been played."""
        self.playing = True
        self._opening = True
        """Whether nobody has gone anywhere, and nothing was said yet."""
        self.speed = 1.0
        """Seconds of the recording for each second, one of `SPEEDS`."""
        self._behind = False
        """Whether events before the present time are yet to be played."""
        self._clock = clock
        self._ticked_at = clock()
        self._go_to(recording.frame_at(0.0))

    @property
    def state(self) -> RunState:
        return self._here.state

    @property
    def at_end(self) -> bool:
        recording = self.recording
        return recording.complete and not recording.goes_on and self.at_s >= recording.duration_s

    def tick(self) -> None:
        """Play what is due by the clock, and what a jump has left; the end pauses. Raises as `read_from`."""
        if self._opening and math.isfinite(self.recording.said_s):
            self.jump(max(self.at_s, self.recording.said_s))
        now = self._clock()
        elapsed, self._ticked_at = now - self._ticked_at, now
        if self.playing:
            self._play_until(min(self.at_s + elapsed * self.speed, self.recording.duration_s))
            self.playing = not self.at_end
        elif self._behind:
            self._play_until(self.at_s)

    def toggle(self) -> None:
        self.playing = not self.playing
        if self.playing and self.at_end:
            self.jump(0.0)

    def jump(self, at_s: float) -> None:
        """Go to a time; what lies between it and a kept state may take some ticks. Raises as `read_from`."""
        self._opening = False
        at_s = min(max(at_s, 0.0), self.recording.duration_s)
        frame = self.recording.frame_at(at_s)
        if at_s < self.at_s or frame.offset > self._here.offset:
            self._go_to(frame)
        self._play_until(at_s)

    def change_speed(self, steps: int) -> None:
        index = SPEEDS.index(self.speed) + steps
        self.speed = SPEEDS[min(max(index, 0), len(SPEEDS) - 1)]

    def _go_to(self, frame: Keyframe) -> None:
        self._here = frame
        self._events = event_log.read_from(self.recording.path, frame.offset)
        self._next: event_log.Logged | None = None

    def _play_until(self, at_s: float) -> None:
        """Take events up to and at a time, `PLAYED_EVENTS` at most."""
        self.at_s = at_s
        for _ in range(PLAYED_EVENTS):
            coming = self._coming()
            self._behind = (
                coming is not None and self._here.moment.of_next(coming.event).at_s <= at_s
            )
            if coming is None or not self._behind:
                return
            self._here, self._next = self._here.after(coming), None

    def _coming(self) -> event_log.Logged | None:
        """The next event, not taken; None at the end of what has been read."""
        if self._next is None and self._here.offset < self.recording.end:
            self._next = next(self._events, None)
        return self._next


def clock_text(at_s: float) -> str:
    """Seconds as ``0:42``, ``12:05`` or ``1:02:33``."""
    minutes, seconds = divmod(int(at_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
