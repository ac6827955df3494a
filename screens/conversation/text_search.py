"""A search through a conversation: every match of a text, in order, while newer entries come and the oldest go."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self

MAX_MATCHES = 10_000
"""Matches counted when a search begins; the newest ones are, and all that are newer than where it began."""


class Match(NamedTuple):
    serial: int
    """The serial number of the entry."""
    nth: int
    """Which match in the entry, from 0."""


class TextSearch:
    """Matches of one text, upper and lower case alike."""

    def __init__(self, text: str, origin: int, before: Self | None = None) -> None:
        """A search that has not looked yet.

        Args:
            text: not empty.
            origin: serial of the entry where the search begins: the current match is the last one up to it, or the
                first one after it.
            before: the search before this one. Where its text is how this one begins, all it has looked through is
                known to have no match but where it had one.
        """
        self.text = text
        self.pattern = re.compile(re.escape(text), re.IGNORECASE)
        self._origin = origin
        self._matches: list[Match] = []
        self._at: int | None = None
        self._next = 0
        """Serial of the first entry that was not looked through."""
        self._more = ""
        """`+` if there are older matches that were not counted."""
        narrows = before is not None and not before._more and text.startswith(before.text)
        self._before = before if narrows else None

    def __len__(self) -> int:
        return len(self._matches)

    @property
    def current(self) -> Match | None:
        """The match that is highlighted above the others."""
        return None if self._at is None else self._matches[self._at]

    @property
    def status(self) -> str:
        """Which match of how many, for people."""
        return "no match" if self._at is None else f"{self._at + 1:,} of {len(self):,}{self._more}"

    def look(self, first: int, last: int, texts: Callable[[int], Sequence[str]]) -> None:
        """Look through the entries that are new, and forget matches in those that are gone.

        `first` is the serial of the oldest entry, `last` of the newest one that will not change.
        """
        self._forget_outside(first, last)
        found: list[Match] = []
        for serial in self._to_look_through(max(first, self._next), last):
            if len(found) >= MAX_MATCHES and serial <= self._origin:
                self._more = "+"
                break
            count = sum(len(self.pattern.findall(text)) for text in texts(serial))
            found += [Match(serial, nth) for nth in reversed(range(count))]
        self._matches += reversed(found)
        self._next = last + 1
        if self._at is None and self._matches:
            self._at = max(bisect_left(self._matches, (self._origin + 1, 0)) - 1, 0)

    def _to_look_through(self, first: int, last: int) -> Iterator[int]:
        """The serials of the entries that may have a match, the newest first."""
        before = self._before
        self._before = None
        if before is None:
            yield from range(last, first - 1, -1)
            return
        yield from range(last, max(first, before._next) - 1, -1)
        having = dict.fromkeys(match.serial for match in reversed(before._matches))
        yield from (serial for serial in having if first <= serial <= last)

    def step(self, by: int) -> None:
        """Go to another match; after the last comes the first."""
        if self._at is not None:
            self._at = (self._at + by) % len(self)

    def _forget_outside(self, first: int, last: int) -> None:
        gone = bisect_left(self._matches, (first, 0))
        self._matches = self._matches[gone : bisect_left(self._matches, (last + 1, 0))]
        self._next = min(self._next, last + 1)
        if self._at is not None:
            self._at = min(max(self._at - gone, 0), len(self) - 1) if self._matches else None
