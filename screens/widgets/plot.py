"""A chart: curves over episodes with a band of error, dashed levels, marks, and labelled axes.

Drawn with textual-plot, imported in a thread when there is something to draw; at most every `CHART_S` seconds.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Mount
from textual.geometry import Size
from textual.widgets import Static

from llamagym_tui.screens.widgets.look import own_styles, plot_colors
from llamagym_tui.screens.widgets.numbers import tick_labels

if TYPE_CHECKING:
    from textual_plot import PlotWidget

CHART_S = 1.0
"""Seconds between two drawings, at least."""
MARGIN_LEFT = 8
"""Cells for the labels of the y axis."""
CELLS_PER_DASH = 2
"""Cells of a level for each of its dashes."""
FRAME = 4
"""Rows of a chart that are no part of its inside."""


class Curve(NamedTuple):
    """A line, or dots."""

    points: Sequence[tuple[float, float]]
    """x and y, by rising x."""
    color: str = "primary"
    """Name of a colour of the theme."""
    marker: str = ""
    """What each point is drawn as; empty: a line in Braille dots."""


class Line(NamedTuple):
    """How a level is drawn, in a chart and in what explains it: two that differ in colour differ in their dashes."""

    color: str
    """Name of a colour of the theme."""
    dash: str


BASELINES = {
    "optimal": Line("success", "═"),
    "expert": Line("accent", "╌"),
    "random": Line("warning", "·"),
}
"""The lines of published mean returns, by whose play it is."""
OTHER = Line("foreground", "─")
"""The line of another one."""
BOUND = Line("success", "╌")
"""The line of a bound of what is healthy."""


def line_of(name: str) -> Line:
    """The line of a baseline by its name."""
    return BASELINES.get(name, OTHER)


class Level(NamedTuple):
    """A dashed horizontal line."""

    y: float
    line: Line
    name: str = ""
    """Stands at its right end."""


def baseline_levels(known: Mapping[str, float]) -> list[Level]:
    return [Level(value, line_of(name), name) for name, value in known.items()]


class Drawing(NamedTuple):
    curves: Sequence[Curve]
    """At least one point among them."""
    band: Sequence[float] = ()
    """Half the height of what is shaded around the first curve, at each of its points."""
    levels: Sequence[Level] = ()
    marks: Sequence[float] = ()
    """x of vertical lines."""
    fitted: Sequence[float] = ()
    """Other values of y that have to be within the chart."""
    left: float | None = None
    """Where the x axis begins; None: with the first point."""


class Plot(Vertical):
    DEFAULT_CSS = own_styles(__file__)

    def __init__(self, wait: str, *, id: str | None = None) -> None:
        """`wait` is shown in place of a chart that cannot be drawn yet."""
        super().__init__(id=id)
        self._wait = wait
        self._plot: PlotWidget | None = None
        self._of: object = None
        self._make: Callable[[], Drawing | None] = lambda: None
        self._drawn: tuple[object, Size] | None = None
        self._drawn_at = 0.0
        self._loading = False
        self.due = False
        """Whether a drawing waits for its time."""

    def compose(self) -> ComposeResult:
        yield Static(self._wait, classes="plot-wait", markup=False)

    def is_drawn(self, of: object) -> bool:
        """Whether the chart of something is drawn, for the present size."""
        return self._drawn == (of, self.size)

    def show(
        self, of: object, make: Callable[[], Drawing | None], *, at_once: bool = False
    ) -> None:
        """Draw something else: at once, or `CHART_S` after the drawing before.

        Args:
            of: what the chart is of; the same is not drawn twice for one size.
            make: makes the drawing; None: there is nothing to draw yet.
            at_once: whether a person waits for it.
        """
        self._of = of
        self._make = make
        is_time = time.monotonic() >= self._drawn_at + CHART_S
        if at_once or (is_time and self.is_attached and self.screen.is_current):
            self._draw()
        elif not self.due and not self.is_drawn(of):
            self.due = (
                True  # before then, another call is as good: what it draws is painted with all else
            )
            self.set_timer(CHART_S, self._draw_in_time)

    def on_resize(self) -> None:
        """Band and levels are laid out in cells: another size needs others."""
        self._draw()

    def _draw_in_time(self) -> None:
        self.due = False
        if self.is_attached:
            self.show(self._of, self._make)  # later, if another screen lies above

    def _draw(self) -> None:
        if not self.size or not self.is_attached or self.is_drawn(self._of):
            return
        drawing = self._make()
        self._drawn_at = time.monotonic()
        if drawing is not None and self._plot is None:
            if not self._loading:
                self._loading = True
                self._load()
            return
        self.query(".plot-wait").set(display=drawing is None)
        if self._plot is not None:
            self._plot.display = drawing is not None
            fits = self._drawn is not None and self._drawn[1] == self.size
            # What is hidden is drawn again, even if it is the same.
            self._drawn = None if drawing is None else (self._of, self.size)
            if drawing is not None:
                self._fill(self._plot, drawing)
                if fits:
                    self._plot.render()  # now: its parts are painted together with it
                else:  # the plot fits its canvas to its place only with a new layout
                    self._plot.refresh(layout=True)

    @work
    async def _load(self) -> None:
        library: Any = await asyncio.to_thread(importlib.import_module, "textual_plot")
        if not self.is_attached:
            return  # The screen was left meanwhile.
        plot = _kind_of_plot(library)(allow_pan_and_zoom=False)
        plot.can_focus = False
        await self.mount(plot)
        if not plot.children:
            return
        plot.margin_left = MARGIN_LEFT
        plot.margin_bottom = 1
        plot.margin_top = 1
        labels = {"get_labels_for_ticks": lambda _, ticks: tick_labels(ticks)}
        formatter = type("Labels", (library.NumericAxisFormatter,), labels)()
        plot.set_x_formatter(formatter)
        plot.set_y_formatter(formatter)
        self._plot = plot
        self._draw()

    def _fill(self, plot: PlotWidget, drawing: Drawing) -> None:
        library: Any = importlib.import_module("textual_plot")
        colors = plot_colors(self.app.theme_variables)
        points = [point for curve in drawing.curves for point in curve.points]
        left = min(x for x, _ in points) if drawing.left is None else drawing.left
        right = max(x for x, _ in points)
        with self.app.batch_update():
            plot.clear()
            cells, rows = self._cells
            ys = [*(y for _, y in points), *drawing.fitted]
            low, high = _set_scale(plot, left, right, ys, min(5, rows // 2), cells)
            self._draw_band(plot, drawing, low, high, colors["secondary"])
            dashes = max(2, (self.size.width - MARGIN_LEFT) // CELLS_PER_DASH)
            across = [left + (right - left) * (dash + 0.5) / dashes for dash in range(dashes)]
            for level in reversed(drawing.levels):  # of two in one row the first is seen
                if low <= level.y <= high:
                    line = level.line
                    plot.scatter(
                        across,
                        [level.y] * dashes,
                        marker=line.dash,
                        marker_style=colors[line.color],
                    )
            self._name_levels(plot, drawing, (left, right), (low, high))
            # Not the library's vertical lines, which cover the curve.
            up = [low + (high - low) * (row + 0.5) / rows for row in range(rows)]
            for mark in drawing.marks:
                if left <= mark <= right:
                    plot.scatter([mark] * rows, up, marker="┊", marker_style=colors["accent"])
            for curve in drawing.curves:
                xs, ys = [x for x, _ in curve.points], [y for _, y in curve.points]
                if curve.marker:
                    plot.scatter(xs, ys, marker=curve.marker, marker_style=colors[curve.color])
                elif xs:
                    plot.plot(
                        xs, ys, line_style=colors[curve.color], hires_mode=library.HiResMode.BRAILLE
                    )

    def _name_levels(
        self,
        plot: PlotWidget,
        drawing: Drawing,
        across: tuple[float, float],
        up: tuple[float, float],
    ) -> None:
        """Write the names of levels on them, at the right, or at the left where only there no curve passes.

        Of two in one row the first has its name.
        """
        import numpy as np

        colors = plot_colors(self.app.theme_variables)
        columns, rows = self._cells
        (left, right), (low, high) = across, up
        middles = left + (right - left) * (np.arange(columns) + 0.5) / columns
        curves = []
        for curve in drawing.curves:
            if curve.points:
                xs = [x for x, _ in curve.points]
                ys = [y for _, y in curve.points]
                curves.append(np.interp(middles, xs, ys))
        named: set[int] = set()
        for level in drawing.levels:
            row = int((level.y - low) / (high - low) * rows)
            wide = len(level.name) + 2
            if not level.name or row in named or not 0 <= row < rows or wide > columns // 2:
                continue
            named.add(row)
            begin = columns - wide
            apart = [np.abs(heights - level.y) / (high - low) * rows for heights in curves]
            at_right = min(float(each[begin:].min()) for each in apart)
            at_left = min(float(each[:wide].min()) for each in apart)
            if at_right < 1.0 < at_left:
                begin = 0
            for column, letter in enumerate(f" {level.name} ", begin):
                x = float(middles[column])
                plot.scatter([x], [level.y], marker=letter, marker_style=colors[level.line.color])

    @property
    def _cells(self) -> tuple[int, int]:
        """Columns and rows of the inside of the chart."""
        return max(2, self.size.width - MARGIN_LEFT - 2), max(2, self.size.height - FRAME)

    def _draw_band(
        self, plot: PlotWidget, drawing: Drawing, low: float, high: float, color: str
    ) -> None:
        """Shade the band, cell by cell: in the middle of each column, along the line between its points."""
        import numpy as np

        if len(drawing.band) < 2:
            return
        columns, rows = self._cells
        step = (high - low) / rows / 2
        across: list[float] = []
        up: list[float] = []
        xs, ys = zip(*drawing.curves[0].points, strict=True)
        at = xs[0] + (xs[-1] - xs[0]) * (np.arange(columns) + 0.5) / columns
        for x, y, half in zip(
            at, np.interp(at, xs, ys), np.interp(at, xs, drawing.band), strict=True
        ):
            bottom, top = max(low, y - half), min(high, y + half)
            cells = max(1, math.ceil((top - bottom) / step)) if half and top > bottom else 0
            across += [x] * cells
            up += [bottom + (cell + 0.5) / cells * (top - bottom) for cell in range(cells)]
        if across:
            plot.scatter(across, up, marker="░", marker_style=color)


def _kind_of_plot(library: Any) -> type[PlotWidget]:
    """The library's, which also bears to be mounted while the app closes: then it gets no parts any more."""

    class PlotOfParts(library.PlotWidget):
        def on_mount(self, event: Mount) -> None:
            if not self.children:
                event.prevent_default()

        def _update_margin_sizes(self) -> None:
            if self.children:
                super()._update_margin_sizes()

    return PlotOfParts


def _set_scale(
    plot: PlotWidget, left: float, right: float, values: Sequence[float], labels: int, cells: int
) -> tuple[float, float]:
    """Set limits and labels of the axes, about so many labels up, and what `cells` have room for; the limits of y."""
    pad = 0.06 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 0.5
    low, high = min(values) - pad, max(values) + pad
    right = max(right, left + 1, left * (1 + 1e-9))  # the last for what one more does not change
    plot.set_ylimits(low, high)
    plot.set_yticks(nice_ticks(low, high, labels))
    plot.set_xlimits(left, right)
    # A label near the end would be cut at the border; neighbours have to stay apart.
    # Episodes are counted: no label stands between two of them.
    last = right - 0.06 * (right - left)
    every = [nice_ticks(left, last, about, whole=True) for about in (4, 3, 2, 1)]
    cells_of_one = cells / (right - left)
    plot.set_xticks(next((ticks for ticks in every if _are_apart(ticks, cells_of_one)), []))
    return low, high


def _are_apart(ticks: Sequence[float], cells_of_one: float) -> bool:
    """Whether the labels of neighbours do not touch, where 1 takes so many cells."""
    widest = max(map(len, tick_labels(ticks)), default=0)
    return len(ticks) < 2 or (ticks[1] - ticks[0]) * cells_of_one > widest + 0.5


def nice_ticks(low: float, high: float, about: int, *, whole: bool = False) -> list[float]:
    """Some `about` round numbers between two bounds: multiples of 1, 2 or 5 times a power of ten, of 1 at least if
    they are to be `whole`."""
    raw = max((high - low) / about, 1.0 if whole else 0.0)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.ceil(low / step), math.floor(high / step)
    digits = 2 - math.floor(math.log10(step))
    return [round(index * step, digits) for index in range(first, last + 1)]
