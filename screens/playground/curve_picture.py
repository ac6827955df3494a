"""The curve of mean return as the places of a picture: what a report and a card draw of it."""

from typing import Any

from llamagym_tui.returns import margin, smoothing_window, thinned
from llamagym_tui.screens.widgets.chart import nice_ticks
from llamagym_tui.screens.widgets.numbers import baselines, plain, tick_labels
from llamagym_tui.state.run import RunState

WIDTH = 860
"""The width of the inside of the chart."""
HEIGHT = 300
"""The height of the inside of the chart."""
LEFT = 64
"""The margin to the left of it, with the labels of returns."""
TOP = 24
"""The margin above it."""


def chart_of(state: RunState) -> dict[str, Any] | None:
    """The curve of mean return with its band, baselines and marks, by their names; None: too few episodes."""
    window = smoothing_window(state.returns.episodes)
    points = thinned(state.returns.trailing(window), WIDTH)
    if len(points) < 2:
        return None
    known = baselines(state)
    curve = [(point.episode, point.mean_return) for point in points]
    below = [(point.episode, point.mean_return - margin(point.stderr)) for point in points]
    above = [(point.episode, point.mean_return + margin(point.stderr)) for point in points]
    # The band of the first few episodes is as wide as the returns are: it may leave the chart.
    sure = len(points) // 4
    values = [value for _, value in [*curve, *below[sure:], *above[sure:]]]
    values += known.values()
    pad = 0.06 * (max(values) - min(values)) or 0.5
    low = min(values) - pad
    high = max(values) + pad
    first = curve[0][0]
    last = curve[-1][0]

    def at(episode: float, value: float) -> tuple[float, float]:
        """The place of a point in the picture, whose y grows downwards."""
        inside = min(max(value, low), high)
        across = (episode - first) / (last - first)
        down = (high - inside) / (high - low)
        return round(LEFT + WIDTH * across, 1), round(TOP + HEIGHT * down, 1)

    return_ticks = nice_ticks(low, high, 5)
    episode_ticks = nice_ticks(first, last, 6)
    marks = [mark for mark in state.marks if first <= mark.episode <= last]
    return {
        "at": at,
        "window": window,
        "curve": curve,
        "band": [*above, *below[::-1]],
        "low": low,
        "high": high,
        "first": first,
        "last": last,
        "ups": [*zip(return_ticks, tick_labels(return_ticks), strict=True)],
        "acrosses": [*zip(episode_ticks, tick_labels(episode_ticks), strict=True)],
        "levels": [(f"{name} {plain(value)}", value) for name, value in known.items()],
        "marks": list(enumerate(marks, 1)),
    }
