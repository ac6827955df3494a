"""Formats of numbers on screens."""

import math
from collections.abc import Mapping, Sequence

from textual.content import Content

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.state.returns import real_minus, signed, thinned
from llamagym_tui.state.run import RunState
from llamagym_tui.state.texts import BARS


def plain(value: float, least: float = 1e-6) -> str:
    """A number in about seven characters; 0 below a magnitude."""
    if value == 0 or abs(value) < least:
        return "0"
    if not 0.001 <= abs(value) < 10_000:
        return scientific(value)
    if abs(value) >= 100:
        digits = 0
    elif abs(value) >= 1:
        digits = 2
    else:
        digits = 3
    return real_minus(f"{value:,.{digits}f}")


def share(value: float, decimals: int = 1) -> str:
    """A fraction as a percentage."""
    return f"{value:.{decimals}%}" if math.isfinite(value) else "no number"


def spark(values: Sequence[float], width: int) -> str:
    """A curve as one row of bars; what is not finite stands at the bottom."""
    finite = [value for value in values if math.isfinite(value)]
    low = min(finite, default=0.0)
    span = (max(finite, default=0.0) - low) or 1.0
    top = len(BARS) - 1
    return "".join(
        BARS[round((value - low) / span * top) if math.isfinite(value) else 0]
        for value in thinned(values, width)
    )


def baselines(state: RunState) -> dict[str, float]:
    """Published mean returns by name, the best first."""
    return best_first(state.run.baselines if state.run else {})


def best_first(known: Mapping[str, float]) -> dict[str, float]:
    """Mean returns by the name of the player as screens have it, the best first."""
    ordered = sorted(known.items(), key=lambda item: -item[1])
    return {"best" if name == "optimal" else one_line(name): value for name, value in ordered}


BAR = 10
"""Cells of a bar for a share."""


def number(value: float, decimals: int | None = None) -> str:
    """A signed number with a real minus sign; whole numbers have no decimals by default."""
    if decimals is None:
        decimals = 0 if float(value).is_integer() else 3
    if value == 0:
        return f"{0:.{decimals}f}"
    return signed(value, decimals)


def bar(share: float, cells: int = BAR) -> str:
    """A bar of at most `cells` cells, in eighths of a cell; empty for NaN."""
    if not math.isfinite(share):
        return ""
    within = min(max(share, 0.0), 1.0)
    whole, eighths = divmod(round(8 * cells * within), 8)
    end = " ▏▎▍▌▋▊▉"[eighths] if eighths else ""
    return "█" * whole + end


def track(share: float, cells: int = BAR) -> Content:
    """A bar in a groove of `cells` cells."""
    filled = bar(share, cells)
    return Content.assemble((filled, "$primary"), ("░" * (cells - len(filled)), "$aside"))


def share_bar(value: float) -> Content:
    """A share as a bar and in per cent, always as wide."""
    return Content.assemble((f"{bar(value):<{BAR}}", "$primary"), f" {share(value, 0):>4}")


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Labels of an axis, with enough decimals to tell its ticks apart."""
    step = 1.0
    if len(ticks) > 1:
        step = ticks[1] - ticks[0]
    elif ticks and ticks[0]:
        step = abs(ticks[0])
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if decimals < 6:
        return [real_minus(f"{tick:,.{decimals}f}") for tick in ticks]
    largest = max(abs(tick) for tick in ticks)
    digits = max(0, math.floor(math.log10(largest)) + decimals)
    return [scientific(tick, digits) if tick else "0" for tick in ticks]


def scientific(value: float, digits: int = 0) -> str:
    """A number as 3e−9."""
    return real_minus(f"{value:.{digits}e}".replace("e-0", "e-").replace("e+0", "e"))
