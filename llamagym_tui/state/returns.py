"""Episode returns over a whole run in bounded memory: the line of the chart, and the figure next to it.

A series keeps sums over groups of consecutive episodes. When there are too many groups, neighbours merge and the
groups become twice as long, so a run of any length costs the same. Nothing here draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from llamagym_tui.protocol.events import EvaluationFinished

AnyT = TypeVar("AnyT")
MAX_GROUPS = 512
"""Groups kept; merging halves them."""
RECENT = 1000
"""Episodes behind the figure of recent mean return."""
NORMAL = 1.96
"""Standard errors on each side of a mean that hold it 95 times in 100."""
MOST_DECIMALS = 3
"""Decimals of a return, at most."""


def real_minus(text: str) -> str:
    """A formatted number with a minus sign in place of its hyphens."""
    return text.replace("-", "\N{MINUS SIGN}")


def signed(value: float, decimals: int = MOST_DECIMALS) -> str:
    """A return as the app shows it: signed, with a real minus sign."""
    return real_minus(f"{value:+,.{decimals}f}")


def decimals(mean: float, half: float) -> int:
    """Decimals of a mean and its ±: the first two digits of the ±, and at most `MOST_DECIMALS`."""
    if not half:
        return 0 if float(mean).is_integer() else MOST_DECIMALS
    return max(0, min(MOST_DECIMALS, 1 - math.floor(math.log10(half))))


def plus_minus(mean: float, half: float) -> str:
    """A mean and what it may be off by: −0.030 ± 0.059, +187 ± 12."""
    places = decimals(mean, half)
    return f"{signed(mean, places)} ± {half:,.{places}f}"


def counted(count: int, noun: str) -> str:
    """A count and its noun, in the plural unless it is one."""
    ending = "" if count == 1 else "s"
    return f"{count:,} {noun}{ending}"


def left_text(seconds: float | None) -> str:
    """The time that the rest takes, in words; empty if unknown."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f", {seconds:.0f} s left"
    return f", {seconds / 60:,.0f} min left"


def with_unit(figure: str, unit: str) -> str:
    """A figure and what it counts, where that has a name."""
    return f"{figure} {unit}" if unit else figure


def margin(stderr: float) -> float:
    """Half the width of a mean's 95 % confidence interval, from its standard error: what stands behind every ±."""
    return NORMAL * stderr


class CurvePoint(NamedTuple):
    """A point of the curve."""

    episode: int
    """Episodes since the run began."""
    mean_return: float
    """Mean over the last episodes up to this one; how many, the series decides."""
    stderr: float = 0.0
    """Standard error of that mean; 0 if it is the mean of a single episode."""


class Group(NamedTuple):
    """Sums over consecutive episodes."""

    total: float = 0.0
    """Sum of their returns."""
    squares: float = 0.0
    """Sum of the squared returns."""
    episodes: int = 0

    def plus(self, other: Group) -> Group:
        """The sums over the episodes of both."""
        return Group(
            self.total + other.total,
            self.squares + other.squares,
            self.episodes + other.episodes,
        )


class ReturnSeries(Struct, frozen=True):
    """Sums of returns over groups of consecutive episodes."""

    start: int = 0
    """The number of episodes that the run had before the first one here; after a resume it may be more than 0."""
    groups: tuple[Group, ...] = ()
    """Full groups, but for the last one."""
    size: int = 1
    """Episodes in a full group."""
    effect: float = 1.0
    """Design effect of the last batch: the variance of a mean, relative to that of episodes of which no two share a
    seed."""

    @property
    def episodes(self) -> int:
        """The number of episodes in all groups."""
        return sum(group.episodes for group in self.groups)

    def add(self, returns: Iterable[float]) -> ReturnSeries:
        """The series with more episodes at its end; non-finite returns count as 0."""
        groups = list(self.groups)
        size = self.size
        for value in returns:
            if not groups or groups[-1].episodes == size:
                if len(groups) == MAX_GROUPS:
                    pairs = zip(groups[::2], groups[1::2], strict=True)
                    groups = [first.plus(second) for first, second in pairs]
                    size *= 2
                groups.append(Group())
            value = value if math.isfinite(value) else 0.0
            groups[-1] = groups[-1].plus(Group(value, value * value, 1))
        return replace(self, groups=tuple(groups), size=size)

    def counted(self, returns: Sequence[float], episodes: int) -> ReturnSeries:
        """The series with the returns of the last episodes of a run that now has `episodes`.

        A run that was resumed plays some of its episodes once more: those replace what was there.
        """
        before = max(0, episodes - len(returns))
        kept = self.until(before)
        if not kept.groups:
            kept = ReturnSeries(start=before, effect=self.effect)
        return kept.add(returns)

    def until(self, episode: int) -> ReturnSeries:
        """The series without the episodes after `episode`, and without a group that goes beyond it."""
        if episode >= self.start + self.episodes:
            return self
        kept = max(0, (episode - self.start) // self.size)
        return replace(self, groups=self.groups[:kept])

    def trailing(self, window: int) -> list[CurvePoint]:
        """Mean return of the last `window` episodes, rounded up to groups, at the end of each group.

        The first points are means of fewer episodes: of at least half a window if the series is that long. Where
        episodes share seeds, the error is the wider by the root of the design effect.
        """
        span = max(1, math.ceil(window / self.size))
        # Sums over the first 0, 1, 2, … groups, so that a difference of two is the sum over the groups between them.
        sums = list(accumulate(self.groups, Group.plus, initial=Group()))
        half_a_window = (span + 1) // 2
        first_end = min(len(self.groups), half_a_window)
        points = []
        for end in range(max(1, first_end), len(sums)):
            before = sums[max(0, end - span)]
            count = sums[end].episodes - before.episodes
            mean = (sums[end].total - before.total) / count
            # The sum of squared deviations from the mean, as the sum of squares less count times the mean's square.
            spread = sums[end].squares - before.squares - count * mean * mean
            error = standard_error(spread, count) * math.sqrt(max(1.0, self.effect))
            points.append(CurvePoint(self.start + sums[end].episodes, mean, error))
        return points


def standard_error(spread: float, count: int) -> float:
    """Standard error of a mean over `count` values, from the sum of squared deviations; 0 for a single value."""
    if count <= 1:
        return 0.0
    variance = max(spread, 0.0) / (count - 1)  # rounding can leave a spread just below 0
    return math.sqrt(variance / count)


def smoothing_window(episodes: int) -> int:
    """Episodes in the mean of each point of the curve: a tenth of the run, at least 20, at most `RECENT`."""
    return min(RECENT, max(20, episodes // 10))


def thinned(points: Sequence[AnyT], at_most: int) -> list[AnyT]:
    """At most `at_most` of the points, evenly spaced, with the last one."""
    if at_most < 1 or len(points) <= at_most:
        return list(points)
    step = math.ceil(len(points) / at_most)
    last_first = points[::-1][::step]
    return list(reversed(last_first))


class MeanReturn(NamedTuple):
    """A mean with its standard error."""

    mean: float
    stderr: float
    """Standard error of the mean; 0 for a single episode."""
    episodes: int

    @property
    def mean_text(self) -> str:
        """The mean alone, with as many decimals as in `text`."""
        return signed(self.mean, decimals(self.mean, margin(self.stderr)))

    @property
    def text(self) -> str:
        """The mean as the app shows it, ± half its 95 % confidence interval: +0.030 ± 0.059; a single episode has no
        interval."""
        if self.episodes == 1:
            return self.mean_text
        return plus_minus(self.mean, margin(self.stderr))

    @property
    def interval_text(self) -> str:
        """The two ends of its 95 % confidence interval: +0.010 … +0.050."""
        half = margin(self.stderr)
        places = decimals(self.mean, half)
        return f"{signed(self.mean - half, places)} … {signed(self.mean + half, places)}"


def evaluated_return(found: EvaluationFinished) -> MeanReturn:
    """The mean return of an evaluation."""
    return MeanReturn(found.mean_return, found.return_stderr, found.episodes)


def mean_return(returns: Sequence[float]) -> MeanReturn | None:
    """Mean and standard error of the finite ones of episode returns; None if there is none."""
    finite = [value for value in returns if math.isfinite(value)]
    if not finite:
        return None
    mean = math.fsum(finite) / len(finite)
    spread = math.fsum((value - mean) ** 2 for value in finite)
    return MeanReturn(mean, standard_error(spread, len(finite)), len(finite))
