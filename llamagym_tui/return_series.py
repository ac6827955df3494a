"""Episode returns over a whole run in bounded memory: the line of the chart, and the figure beside it.

A series keeps sums over groups of consecutive episodes. When there are too many groups, neighbours merge and the
groups become twice as long, so a run of any length costs the same. Nothing here draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MAX_GROUPS = 512
"""Groups kept; merging halves them."""
RECENT = 1000
"""Episodes behind the figure of recent mean return."""


class Point(NamedTuple):
    """A point of the curve."""

    episode: int
    """Episodes since the run began."""
    mean_return: float
    """Mean over the episodes that end there."""


@dataclass(frozen=True, slots=True)
class ReturnSeries:
    """Sums of returns over groups of consecutive episodes."""

    start: int = 0
    """Episodes of the run before the first one here (not 0 after a resume)."""
    sums: tuple[float, ...] = ()
    """Sum of each group."""
    group: int = 1
    """Episodes in a full group."""
    last: int = 0
    """Episodes in the last group, 0 if there is none."""

    @property
    def episodes(self) -> int:
        """Episodes in all groups."""
        return self.group * (len(self.sums) - 1) + self.last if self.sums else 0

    def add(self, returns: Iterable[float]) -> ReturnSeries:
        """The series with more episodes at its end; non-finite returns count as 0."""
        sums, group, last = list(self.sums), self.group, self.last
        for value in returns:
            value = value if math.isfinite(value) else 0.0
            if sums and last < group:
                sums[-1] += value
                last += 1
                continue
            if len(sums) == MAX_GROUPS:
                sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
                group *= 2
            sums.append(value)
            last = 1
        return ReturnSeries(self.start, tuple(sums), group, last)

    def until(self, episode: int) -> ReturnSeries:
        """The series without its episodes after `episode`, and without a group that ends after it."""
        if episode >= self.start + self.episodes:
            return self
        groups = max(0, (episode - self.start) // self.group)
        return ReturnSeries(self.start, self.sums[:groups], self.group, self.group if groups else 0)

    def trailing(self, window: int) -> list[Point]:
        """Mean return of the last `window` episodes, rounded up to groups, at the end of each group.

        The first points have fewer episodes behind them: at least half a window where the series is that long.
        """
        groups = max(1, math.ceil(window / self.group))
        totals = [0.0]
        for value in self.sums:
            totals.append(totals[-1] + value)
        points = []
        for end in range(min(len(self.sums), (groups + 1) // 2), len(self.sums) + 1):
            begin = max(0, end - groups)
            episodes = self._episodes_before(end)
            if count := episodes - self._episodes_before(begin):
                points.append(Point(self.start + episodes, (totals[end] - totals[begin]) / count))
        return points

    def _episodes_before(self, groups: int) -> int:
        """Episodes in the first `groups` groups."""
        return self.episodes if groups == len(self.sums) else groups * self.group


def smoothing_window(episodes: int) -> int:
    """Episodes behind each point of the curve: a tenth of the run, within 20 and `RECENT`."""
    return min(RECENT, max(20, episodes // 10))


def thinned(points: Sequence[Point], at_most: int) -> list[Point]:
    """Evenly chosen points, the last one always among them."""
    if at_most < 1 or len(points) <= at_most:
        return list(points)
    step = math.ceil(len(points) / at_most)
    return list(reversed(points[::-1][::step]))


class MeanReturn(NamedTuple):
    """A mean with its standard error."""

    mean: float
    stderr: float
    """0 for a single episode."""
    episodes: int


def mean_return(returns: Sequence[float]) -> MeanReturn | None:
    """Mean and standard error of episode returns; None without any."""
    finite = [value for value in returns if math.isfinite(value)]
    if not finite:
        return None
    mean = math.fsum(finite) / len(finite)
    if len(finite) == 1:
        return MeanReturn(mean, 0.0, 1)
    variance = math.fsum((value - mean) ** 2 for value in finite) / (len(finite) - 1)
    return MeanReturn(mean, math.sqrt(variance / len(finite)), len(finite))
