"""The chart of mean return over episodes, with its confidence band, lines for random and optimal play, and a mark
wherever prompt, mode or a setting changed.

The plotting library is imported when there is something to draw and room for it, in a thread, so that it costs
neither the first frame nor a keystroke.
"""

from __future__ import annotations

import asyncio
import importlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from llamagym_tui.returns import Point, margin, smoothing_window, thinned
from llamagym_tui.screens.widgets.literal import one_line
from llamagym_tui.screens.widgets.look import plot_colors
from llamagym_tui.screens.widgets.numbers import baselines, plain
from llamagym_tui.state.run import Mark, RunState

if TYPE_CHECKING:
    from textual_plot import PlotWidget

MARGIN_LEFT = 8
"""Cells for the labels of the y axis."""
CELLS_PER_DOT = 2
"""Cells of a baseline for each of its dots; a dotted line is told from the curve without colour."""


class ReturnChart(Vertical):
    """Mean return of a run."""

    DEFAULT_CSS = """
    ReturnChart {
        height: 1fr;
        min-height: 8;
        max-height: 24;
        & > #chart-wait { height: 1fr; content-align: center middle; color: $foreground 60%; }
        & > #chart-legend { height: auto; max-height: 3; color: $foreground 60%; padding-left: 1; }
        & > PlotWidget {
            height: 1fr;
            & > .plot--axis { color: $foreground 25%; }
            & > .plot--tick { color: $foreground 60%; text-style: none; }
        }
    }
    """

    def __init__(self) -> None:
        """A chart that has nothing to draw yet."""
        super().__init__(id="return-chart")
        self._plot: PlotWidget | None = None
        self._library: Any = None
        self._state: RunState | None = None
        self._drawn: tuple[object, Size] | None = None

    def compose(self) -> ComposeResult:
        """A sentence until there is a curve."""
        yield Static("The curve begins with the first episodes.", id="chart-wait", markup=False)
        yield Static(id="chart-legend", markup=False)

    @property
    def visible_on_screen(self) -> bool:
        """Whether drawing would be seen."""
        return bool(self.size) and self.display

    def is_drawn(self, state: RunState) -> bool:
        """Whether the returns of a state are drawn, for the present size."""
        return self._drawn is not None and self._drawn[0] is state.returns and self._drawn[1] == self.size

    def on_resize(self) -> None:
        """Band and baselines are laid out in cells: another size wants others."""
        if self._state is not None:
            self.show(self._state)

    def show(self, state: RunState) -> None:
        """Draw another state, if anything in the chart is new."""
        self._state = state
        if not self.visible_on_screen or not _has_line(state):
            return
        if self._library is None:
            self._load()
        elif self._plot is not None and not self.is_drawn(state):
            self._draw(state, self._plot)

    @work(exclusive=True)
    async def _load(self) -> None:
        library = await asyncio.to_thread(importlib.import_module, "textual_plot")
        if self._library is not None or not self.is_mounted:
            return
        self._library = library
        plot = library.PlotWidget(allow_pan_and_zoom=False)
        plot.can_focus = False
        await self.query("#chart-wait").remove()
        await self.mount(plot, before="#chart-legend")
        if not plot.children:
            return  # The app is closing: what is mounted now gets no parts any more.
        plot.margin_left, plot.margin_bottom, plot.margin_top = MARGIN_LEFT, 1, 1
        self._plot = plot
        if self._state is not None:
            self.show(self._state)

    def _draw(self, state: RunState, plot: PlotWidget) -> None:
        self._drawn = state.returns, self.size
        window = smoothing_window(state.returns.episodes)
        points = thinned(state.returns.trailing(window), 2 * max(20, self.size.width))
        known = baselines(state)
        colors = plot_colors(self.app.theme_variables)
        with self.app.batch_update():
            plot.clear()
            low, high = self._scale(plot, points, list(known.values()))
            self._draw_band(plot, points, low, high, colors["secondary"])
            for name, value in known.items():
                self._draw_baseline(plot, points, value, colors["success" if name == "optimal" else "warning"])
            for mark in state.marks:
                if points[0].episode <= mark.episode <= points[-1].episode:
                    plot.add_v_line(mark.episode, line_style=colors["accent"])
            plot.plot(
                [point.episode for point in points],
                [point.mean_return for point in points],
                line_style=colors["primary"],
                hires_mode=self._library.HiResMode.BRAILLE,
            )
        self.query_one("#chart-legend", Static).update(_legend(window, known, state.marks))

    @staticmethod
    def _scale(plot: PlotWidget, points: list[Point], known: list[float]) -> tuple[float, float]:
        """Set the limits and labels of the axes; the limits of y."""
        # The band of the first few episodes is as wide as the returns are: it may leave the chart.
        values = [*known, *(point.mean_return for point in points), *_edges(points[len(points) // 4 :])]
        pad = 0.06 * (max(values) - min(values)) or 0.5
        low, high = min(values) - pad, max(values) + pad
        first, last = float(points[0].episode), float(max(points[-1].episode, points[0].episode + 1))
        plot.set_ylimits(low, high)
        plot.set_yticks(nice_ticks(low, high, 5))
        plot.set_xlimits(first, last)
        # A label near the end would be cut at the border.
        plot.set_xticks(nice_ticks(first, last - 0.06 * (last - first), 4))
        return low, high

    def _draw_band(self, plot: PlotWidget, points: list[Point], low: float, high: float, color: str) -> None:
        """Shade where the mean lies with a confidence of 95 %, cell by cell."""
        columns, rows = max(2, self.size.width - MARGIN_LEFT - 2), max(2, self.size.height - 5)
        step = (high - low) / rows / 2
        across: list[float] = []
        up: list[float] = []
        for episode, mean, stderr in _at_columns(points, columns):
            bottom, top = max(low, mean - margin(stderr)), min(high, mean + margin(stderr))
            cells = max(1, math.ceil((top - bottom) / step)) if stderr else 0
            across += [episode] * cells
            up += [bottom + (cell + 0.5) / cells * (top - bottom) for cell in range(cells)]
        if across:
            plot.scatter(across, up, marker="░", marker_style=color)

    def _draw_baseline(self, plot: PlotWidget, points: list[Point], value: float, color: str) -> None:
        first, last = points[0].episode, points[-1].episode
        dots = max(2, (self.size.width - MARGIN_LEFT) // CELLS_PER_DOT)
        across = [first + (last - first) * (dot + 0.5) / dots for dot in range(dots)]
        plot.scatter(across, [value] * dots, marker="╌", marker_style=color)


def _has_line(state: RunState) -> bool:
    """Whether there are two points to draw a line between: fewer episodes than a window are one."""
    return len(state.returns.trailing(smoothing_window(state.returns.episodes))) >= 2


def nice_ticks(low: float, high: float, about: int) -> list[float]:
    """Some `about` round numbers between two bounds: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(index * step, 9) for index in range(first, last + 1)]


def _edges(points: list[Point]) -> list[float]:
    """The outermost values of the band."""
    return [point.mean_return + side * margin(point.stderr) for point in points for side in (-1, 1)]


def _at_columns(points: list[Point], columns: int) -> Iterator[tuple[float, float, float]]:
    """Episode, mean and standard error at the middle of each column, along the line between its neighbours."""
    first, last, after = points[0].episode, points[-1].episode, 1
    for column in range(columns):
        episode = first + (last - first) * (column + 0.5) / columns
        while after < len(points) - 1 and points[after].episode < episode:
            after += 1
        left, right = points[after - 1], points[after]
        share = (episode - left.episode) / max(right.episode - left.episode, 1)
        mean = left.mean_return + share * (right.mean_return - left.mean_return)
        yield episode, mean, left.stderr + share * (right.stderr - left.stderr)


def _legend(window: int, known: dict[str, float], marks: Sequence[Mark]) -> Content:
    """What the lines are; a reader without colour tells the baselines by their values."""
    text = Content.assemble(
        ("━ ", "$primary"), f"mean return of the last {window:,} episodes ", ("░", "$secondary"), " 95 %\n"
    )
    for name, value in known.items():
        style = "$success" if name == "optimal" else "$warning"
        text += Content.assemble(("╌ ", style), f"{one_line(name)} {plain(value)}   ")
    if marks:
        change = f"last change: {one_line(marks[-1].label)} at {marks[-1].episode:,}"
        text += Content.assemble("\n", ("│ ", "$accent"), change)
    return text
