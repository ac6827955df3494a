"""A search through a conversation that goes on: matches before and after where it began, a piece at a time.

Found matches keep their places while newer entries come, older ones are still looked through, and the oldest are let
go.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

MOST = 10_000
"""Matches that are counted."""


class Match(NamedTuple):
    """A place where the text stands."""

    serial: int
    """Of the entry."""
    nth: int
    """Which match in the entry, from 0."""


class TextSearch:
    """Matches of one text, upper and lower case alike."""

    def __init__(self, text: str, serial: int) -> None:
        """A search that has not looked yet.

        Args:
            text: not empty.
            serial: of the entry from which it looks back, and then forth.
        """
        self.text = text
        self.pattern = re.compile(re.escape(text), re.IGNORECASE)
        self.done = False
        """Whether everything was looked through."""
        self._before: list[Match] = []  # from the newest to the oldest
        self._after: list[Match] = []
        self._at: int | None = None  # counted from where the search began: -1 is the last match before it
        self._older, self._newer = serial + 1, serial

    def __len__(self) -> int:
        return len(self._before) + len(self._after)

    @property
    def current(self) -> Match | None:
        """The match that is looked at."""
        if self._at is None:
            return None
        return self._after[self._at] if self._at >= 0 else self._before[-1 - self._at]

    @property
    def status(self) -> str:
        """Which of how many, for people."""
        count = f"{len(self):,}" + ("" if self.done else "+" if len(self) >= MOST else " …")
        if self._at is None:
            return "no match" if self.done else "looking …"
        return f"{len(self._before) + self._at + 1:,} of {count}"

    def look(self, first: int, last: int, texts: Callable[[int], list[str]], budget: int) -> None:
        """Look through some more entries.

        Args:
            first: serial of the oldest entry.
            last: serial of the newest one that changes no more.
            texts: of an entry, by its serial.
            budget: entries to look through at most.
        """
        self._let_go(first)
        while self._newer < last and budget:
            self._newer += 1
            budget -= 1
            self._after += self._matches(self._newer, texts) if self._newer >= first else []
        while self._older > first and budget and len(self) < MOST:
            self._older -= 1
            budget -= 1
            if self._older <= last:
                self._before += reversed(self._matches(self._older, texts))
        self.done = self._newer >= last and self._older <= first
        if self._at is None and (self._before or (self._after and self._older <= first)):
            self._at = -1 if self._before else 0

    def step(self, by: int) -> None:
        """Look at the next match, or the one before; behind the last comes the first."""
        if self._at is not None:
            self._at = (self._at + by + len(self._before)) % len(self) - len(self._before)

    def _matches(self, serial: int, texts: Callable[[int], list[str]]) -> list[Match]:
        count = sum(1 for text in texts(serial) for _ in self.pattern.finditer(text))
        return [Match(serial, nth) for nth in range(count)]

    def _let_go(self, first: int) -> None:
        """Forget matches in entries that are no more."""
        while self._before and self._before[-1].serial < first:
            self._before.pop()
        gone = bisect_left(self._after, (first, 0))
        del self._after[:gone]
        if self._at is not None:
            at = max(self._at - gone, 0) if self._at >= 0 else max(self._at, -len(self._before))
            self._at = min(at, len(self._after) - 1) if len(self) else None
