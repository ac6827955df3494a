"""Numbers as screens show them: the one place for their formats, on top of `llamagym_tui.returns`."""

import math
from collections.abc import Iterable, Sequence

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import real_minus, thinned
from llamagym_tui.state.run import RunState

BARS = "▁▂▃▄▅▆▇█"


def plain(value: float, least: float = 1e-6) -> str:
    """A number in at most seven characters or so; 0 below a magnitude."""
    if value == 0 or abs(value) < least:
        return "0"
    if not 0.001 <= abs(value) < 10_000:
        return scientific(value)
    digits = 0 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return real_minus(f"{value:,.{digits}f}")


def share(value: float, decimals: int = 1) -> str:
    """A fraction as a percentage."""
    return f"{value:.{decimals}%}" if math.isfinite(value) else "no number"


def spark(values: Sequence[float], width: int, fitted: Iterable[float] = ()) -> str:
    """A curve as bars, the lowest and the highest of its values and of what else has to fit at the ends."""
    return spark_rows(values, width, 1, fitted)[0].rstrip()


def spark_rows(
    values: Sequence[float], width: int, height: int, fitted: Iterable[float] = ()
) -> list[str]:
    """The bars in some rows, the highest first; each row is filled up to `width`."""
    every = [value for value in (*values, *fitted) if math.isfinite(value)]
    low, high = min(every, default=0.0), max(every, default=0.0)
    span, top = (high - low) or 1.0, len(BARS) * height - 1
    steps = [
        round((value - low) / span * top) if math.isfinite(value) else 0
        for value in thinned(values, width)
    ]
    rows = ([step - len(BARS) * row for step in steps] for row in reversed(range(height)))
    return [
        "".join(" " if part < 0 else BARS[min(part, len(BARS) - 1)] for part in row).ljust(width)
        for row in rows
    ]


def baselines(state: RunState) -> dict[str, float]:
    """Published mean returns by literal names, the best first."""
    known = state.run.baselines if state.run else {}
    return {
        one_line(name): value for name, value in sorted(known.items(), key=lambda item: -item[1])
    }


BAR = 10
"""Cells of a bar that stands for certainty."""


def number(value: float, decimals: int | None = None) -> str:
    """A signed number with a real minus sign; whole numbers have no decimals unless some are wanted."""
    if decimals is None:
        decimals = 0 if float(value).is_integer() else 3
    return real_minus(f"{value:+,.{decimals}f}") if value else f"{0:.{decimals}f}"


def bar(share: float) -> str:
    """A bar of at most `BAR` cells, in eighths of a cell; none of what is no number."""
    within = min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    whole, eighths = divmod(round(8 * BAR * within), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Labels of an axis, with as many decimals as tell its ticks apart."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) if ticks and ticks[0] else 1.0
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if decimals < 6:
        return [real_minus(f"{tick:,.{decimals}f}") for tick in ticks]
    largest = max(abs(tick) for tick in ticks)
    digits = max(0, math.floor(math.log10(largest)) + decimals)
    return [scientific(tick, digits) if tick else "0" for tick in ticks]


def scientific(value: float, digits: int = 0) -> str:
    """A number as 3e−9."""
    return real_minus(f"{value:.{digits}e}".replace("e-0", "e-").replace("e+0", "e"))
