"""Shows a person one episode after the other at a pace to read, while the run goes on at full speed.

An episode that begins once the one before it has been shown is kept as it is played, and emitted turn by turn; those in
between are left out. Without a pace, and while a person steps or acts, every event is emitted as it comes.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

from llamagym_tui.protocol import events

TURNS_AT_PACE = 10
"""Turns of an episode that are shown at the pace; all turns of a longer one are shown in the time of as many."""
NEXT = (events.EpisodeStarted, events.TokensStreamed, events.TurnFinished)
"""Events that wait until the next turn is due."""


class Showing:
    def __init__(self, emit: Callable[[events.Event], None], clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock
        self.turn_s = 0.0
        """Seconds between two turns that are shown; 0: every event is emitted as it comes."""
        self.is_live = False
        """A person steps or acts: so it is then, too."""
        self.episode: int | None = None
        """The number of the episode that is shown; None until one is."""
        self._waiting: deque[events.WatchedEvent] = deque()
        """Its events that are not emitted yet."""
        self._turns = 0
        """Turns of that episode so far."""
        self._next_at = -math.inf
        """When the next turn is due, by the clock."""

    @property
    def is_direct(self) -> bool:
        """True if every event is emitted as it comes."""
        return self.is_live or not self.turn_s

    def go_live(self, so_far: Sequence[events.Event]) -> None:
        """Emit every event from now on as it comes, first what is not emitted yet of the watched episode so far."""
        self.is_live = True
        first = next(iter(so_far), None)
        if isinstance(first, events.EpisodeStarted) and first.episode == self.episode:
            so_far = list(self._waiting)
        self._waiting.clear()
        for event in so_far:
            self.emit(event)

    def emit(self, event: events.Event) -> None:
        """Take an event; one that is not of the watched environment is emitted at once."""
        if isinstance(event, events.WatchChanged):
            self._waiting.clear()
            self._next_at = -math.inf
        if not isinstance(event, events.WatchedEvent):
            self._emit(event)
            return
        if isinstance(event, events.EpisodeStarted) and not self._waiting:
            self.episode = event.episode
            self._turns = 0
        if self.is_direct:
            self._emit(event)
        elif event.episode == self.episode:
            if isinstance(event, events.ActionsProbed):
                self._waiting.insert(self._place_of(event.turn), event)
            else:
                self._turns += isinstance(event, events.TurnFinished)
                self._waiting.append(event)
            self.go_on()

    def _place_of(self, turn: int) -> int:
        """Where the reply of a turn waits; the end, if it does not."""
        for place, event in enumerate(self._waiting):
            if (
                isinstance(event, events.TokensStreamed | events.TurnFinished)
                and event.turn == turn
            ):
                return place
        return len(self._waiting)

    def go_on(self) -> None:
        """Emit what is due; a state is seen for `turn_s` before its reply, the last one before the next episode."""
        while self._waiting:
            event = self._waiting[0]
            is_early = self._clock() < self._next_at
            if is_early and isinstance(event, NEXT):
                return
            self._emit(self._waiting.popleft())
            if isinstance(event, events.EpisodeStarted | events.TurnFinished):
                share = min(1.0, TURNS_AT_PACE / max(self._turns, 1))
                self._next_at = self._clock() + share * self.turn_s
