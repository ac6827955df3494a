"""Where each entry of a conversation begins, in lines: found, added and dropped at a cost that does not grow with it.

Lines are numbered from the first that ever was, so that a line keeps its number when older ones go.
"""

from __future__ import annotations

from bisect import bisect_right


class LineIndex:
    def __init__(self) -> None:
        self.first = 0
        """Number of the first line."""
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def end(self) -> int:
        """Number of the line after the last."""
        return self._ends[-1] if self._ends else self.first

    def start(self, entry: int) -> int:
        """Number of an entry's first line."""
        return self._ends[entry - 1] if entry else self.first

    def find(self, line: int) -> int:
        """The entry that a line belongs to; of a line outside, the nearest. There is at least one entry."""
        return min(bisect_right(self._ends, max(line, self.first)), len(self._ends) - 1)

    def add(self, lines: int) -> None:
        self._ends.append(self.end + lines)

    def drop_last(self) -> None:
        self._ends.pop()

    def drop_first(self, entries: int) -> None:
        """Drop the first entries; the lines of the others keep their numbers."""
        if entries:
            self.first = self._ends[entries - 1]
            del self._ends[:entries]
