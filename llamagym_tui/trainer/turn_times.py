"""How long a turn in all environments keeps a core busy while conversations grow, and how many earlier turns would not.

Where prompts have the whole conversation a turn reads what is new, but attends to all, and once a conversation is
longer than the model reads, each turn reads all of it anew.
"""

from collections import deque
from statistics import median

LONG_S = 1.0
"""Seconds of a core for a turn in all environments from which on conversations may be too long; other work on the
machine makes no difference to them."""
GROWN = 3.0
"""How many times what it took at first: a large model is slow from the beginning."""
LOOK = 5
"""Turns at first, after one that reads the system prompt too, and turns now, of which the median counts."""
LARGEST_WINDOW = 8
"""Earlier turns that are proposed at most."""


class TurnTimes:
    def __init__(self) -> None:
        self._seen = 0
        self._first: list[float] = []
        self._last: deque[float] = deque(maxlen=LOOK)

    def add(self, seconds: float) -> None:
        """Add what the next turn in all environments took of a core."""
        self._seen += 1
        self._last.append(seconds)
        if self._seen > 1 and len(self._first) < LOOK:
            self._first.append(seconds)

    @property
    def first_s(self) -> float:
        return median(self._first)

    @property
    def now_s(self) -> float:
        return median(self._last)

    @property
    def window(self) -> int | None:
        """The earlier turns that a prompt may have so that a turn takes about `LONG_S`; None: no turn takes long."""
        if self._seen <= 2 * LOOK or self.now_s < max(LONG_S, GROWN * self.first_s):
            return None
        # To read a turn of each conversation takes no longer than it took to play one at first.
        return min(max(int(LONG_S / self.first_s) - 1, 0), LARGEST_WINDOW)
