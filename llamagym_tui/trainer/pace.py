"""How fast a run is played for whoever watches: full speed, or a turn of the watched environment at a time."""

from __future__ import annotations

from collections.abc import Callable


class Pace:
    """Seconds between two turns of the watched environment."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.turn_s = 0.0
        """0: full speed."""
        self._clock = clock
        self._began_at = float("-inf")

    def turn_made(self, began_at: float) -> None:
        """The watched environment has made a turn, begun at a time of the clock."""
        self._began_at = began_at

    @property
    def left_s(self) -> float:
        """Seconds until the next turn is due; 0 if it is."""
        return max(0.0, self._began_at + self.turn_s - self._clock())
