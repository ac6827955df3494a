"""Episode returns over a whole run in bounded memory: the line of the chart, and the figure next to it.

A series keeps sums over groups of consecutive episodes. When there are too many groups, neighbours merge and the
groups become twice as long, so a run of any length costs the same. Nothing here draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import NamedTuple, TypeVar

from llamagym_tui.protocol.events import EvaluationFinished

AnyT = TypeVar("AnyT")
MAX_GROUPS = 512
"""Groups kept; merging halves them."""
RECENT = 1000
"""Episodes behind the figure of recent mean return."""
NORMAL = 1.96
"""Standard errors on each side of a mean that hold it 95 times in 100."""


def real_minus(text: str) -> str:
    """A formatted number with a minus sign in place of its hyphens."""
    return text.replace("-", "\N{MINUS SIGN}")


def signed(value: float, decimals: int = 3) -> str:
    """A return as the app shows it: signed, with a real minus sign."""
    return real_minus(f"{value:+,.{decimals}f}")


def counted(count: int, noun: str) -> str:
    """A count and its noun, in the plural unless it is one."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def with_unit(figure: str, unit: str) -> str:
    """A figure and what it counts, where that has a name."""
    return f"{figure} {unit}" if unit else figure


def margin(stderr: float) -> float:
    """What every ± shows: half the width of a mean's 95 % confidence interval, from its standard error."""
    return NORMAL * stderr


class Point(NamedTuple):
    """A point of the curve."""

    episode: int
    """Episodes since the run began."""
    mean_return: float
    """Mean over the episodes that end there."""
    stderr: float = 0.0
    """Standard error of that mean, 0 where a single episode is behind it."""


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
    squares: tuple[float, ...] = ()
    """Sum of the squared returns of each group."""

    @property
    def episodes(self) -> int:
        """Episodes in all groups."""
        return self.group * (len(self.sums) - 1) + self.last if self.sums else 0

    def add(self, returns: Iterable[float]) -> ReturnSeries:
        """The series with more episodes at its end; non-finite returns count as 0."""
        sums, squares, group, last = list(self.sums), list(self.squares), self.group, self.last
        values = list(returns)
        if not math.isfinite(sum(values)):
            values = [value if math.isfinite(value) else 0.0 for value in values]
        while values:
            if not sums or last == group:
                if len(sums) == MAX_GROUPS:
                    sums, squares = _merged(sums), _merged(squares)
                    group *= 2
                sums.append(0.0)
                squares.append(0.0)
                last = 0
            taken, values = values[: group - last], values[group - last :]
            sums[-1] = sum(taken, sums[-1])
            squares[-1] = sum(map(mul, taken, taken), squares[-1])
            last += len(taken)
        return ReturnSeries(self.start, tuple(sums), group, last, tuple(squares))

    def counted(self, returns: Sequence[float], episodes: int) -> ReturnSeries:
        """The series after episodes with which the run has `episodes`; a resumed run plays some of them once more."""
        before = max(0, episodes - len(returns))
        kept = self.until(before)
        return (kept if kept.sums else ReturnSeries(start=before)).add(returns)

    def until(self, episode: int) -> ReturnSeries:
        """The series without its episodes after `episode`, and without a group that ends after it."""
        if episode >= self.start + self.episodes:
            return self
        groups = max(0, (episode - self.start) // self.group)
        last = self.group if groups else 0
        return ReturnSeries(self.start, self.sums[:groups], self.group, last, self.squares[:groups])

    def trailing(self, window: int) -> list[Point]:
        """Mean return of the last `window` episodes, rounded up to groups, at the end of each group.

        The first points have fewer episodes behind them: at least half a window where the series is that long.
        """
        groups = max(1, math.ceil(window / self.group))
        totals, squares = (
            [0.0, *accumulate(sums)] for sums in (self.sums, self.squares)
        )  # of 0, 1, 2, … groups
        points = []
        for end in range(min(len(self.sums), (groups + 1) // 2), len(self.sums) + 1):
            begin = max(0, end - groups)
            episodes = self._episodes_before(end)
            if count := episodes - self._episodes_before(begin):
                mean = (totals[end] - totals[begin]) / count
                spread = squares[end] - squares[begin] - count * mean * mean
                points.append(Point(self.start + episodes, mean, standard_error(spread, count)))
        return points

    def _episodes_before(self, groups: int) -> int:
        """Episodes in the first `groups` groups."""
        return self.episodes if groups == len(self.sums) else groups * self.group


def _merged(sums: list[float]) -> list[float]:
    """Neighbours added."""
    return [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]


def standard_error(spread: float, count: int) -> float:
    """Standard error of a mean over `count` values, from the sum of squared deviations; 0 for a single value."""
    return math.sqrt(max(spread, 0.0) / (count - 1) / count) if count > 1 else 0.0


def smoothing_window(episodes: int) -> int:
    """Episodes behind each point of the curve: a tenth of the run, within 20 and `RECENT`."""
    return min(RECENT, max(20, episodes // 10))


def thinned(points: Sequence[AnyT], at_most: int) -> list[AnyT]:
    """Evenly chosen points, the last one always among them."""
    if at_most < 1 or len(points) <= at_most:
        return list(points)
    step = math.ceil(len(points) / at_most)
    return list(reversed(points[::-1][::step]))


def averaged(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean of curves, each of a point or more, at the episodes that all of them reach, with its standard error over
    the curves; between its points a curve is a straight line."""
    import numpy as np  # costs the first frame otherwise

    begin, shortest = (
        max(curve[0].episode for curve in curves),
        min(curves, key=lambda curve: curve[-1].episode),
    )
    at = [point.episode for point in shortest if point.episode >= begin]
    heights = [
        np.interp(at, *zip(*[point[:2] for point in curve], strict=True)).tolist()
        for curve in curves
    ]
    means = [(episode, mean_return(values)) for episode, *values in zip(at, *heights, strict=True)]
    return [
        Point(episode, found.mean, found.stderr) for episode, found in means if found is not None
    ]


class MeanReturn(NamedTuple):
    """A mean with its standard error."""

    mean: float
    stderr: float
    """0 for a single episode."""
    episodes: int

    @property
    def text(self) -> str:
        """As the app shows it, ± half its 95 % confidence interval, which a single episode has not: +0.030 ± 0.059."""
        half = f" ± {margin(self.stderr):,.3f}" if self.episodes > 1 else ""
        return f"{signed(self.mean)}{half}"

    @property
    def interval_text(self) -> str:
        """The bounds of its 95 % confidence interval."""
        half = margin(self.stderr)
        return f"{signed(self.mean - half)} … {signed(self.mean + half)}"


def evaluated_return(found: EvaluationFinished) -> MeanReturn:
    """The mean return of an evaluation."""
    return MeanReturn(found.mean_return, found.return_stderr, found.episodes)


def mean_return(returns: Sequence[float]) -> MeanReturn | None:
    """Mean and standard error of episode returns; None without any."""
    finite = [value for value in returns if math.isfinite(value)]
    if not finite:
        return None
    mean = math.fsum(finite) / len(finite)
    spread = math.fsum((value - mean) ** 2 for value in finite)
    return MeanReturn(mean, standard_error(spread, len(finite)), len(finite))
