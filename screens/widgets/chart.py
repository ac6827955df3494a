"""A chart as cells of a terminal: curves in Braille dots, a band, dashed levels with their names, marks, two axes.

One row below and the columns of the largest label on the left are axes; the rest is its inside. `Plot` paints a chart
at most every `CHART_S` seconds.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from llamagym_tui.game.pictures import Dots
from llamagym_tui.screens.widgets.look import plot_colors
from llamagym_tui.screens.widgets.numbers import tick_labels

Point = tuple[float, float]
CELLS_PER_DASH = 2
"""Cells of a level for each of its dashes."""
AXIS = "aside"
"""The colour of axes and their labels."""


class Curve(NamedTuple):
    """A line."""

    points: Sequence[Point]
    """x and y, by rising x."""
    color: str = "primary"
    """Name of a colour of the theme."""


class Line(NamedTuple):
    """The look of a level, in a chart and in its legend; levels differ in colour and in dash."""

    color: str
    """Name of a colour of the theme."""
    dash: str


BASELINES = {
    "optimal": Line("success", "═"),
    "expert": Line("accent", "╌"),
    "random": Line("warning", "·"),
}
"""Lines of published mean returns, by the name of the player."""
OTHER = Line("foreground", "─")
"""The line of any other player."""
BOUND = Line("success", "╌")
"""The line of a healthy bound."""


def line_of(name: str) -> Line:
    """The line of a baseline by its name."""
    return BASELINES.get(name, OTHER)


class Level(NamedTuple):
    """A dashed horizontal line."""

    y: float
    line: Line
    name: str = ""
    """Stands at its right end; where there is no room for all of it, its first word."""


def baseline_levels(known: Mapping[str, float]) -> list[Level]:
    return [Level(value, line_of(name), name) for name, value in known.items()]


class Drawing(NamedTuple):
    curves: Sequence[Curve]
    """At least one point among them."""
    band: Sequence[float] = ()
    """Half the height of the shade around the first curve, at each of its points."""
    levels: Sequence[Level] = ()
    marks: Sequence[float] = ()
    """x of vertical lines."""
    fitted: Sequence[float] = ()
    """Other values of y that the chart includes."""
    left: float | None = None
    """Begin of the x axis; None: the first point."""
    right: float | None = None
    """End of the x axis; None: the last point."""


class Run(NamedTuple):
    """Adjacent characters of one colour."""

    text: str
    color: str
    """Name of a colour of the theme; empty: none."""


class Scale(NamedTuple):
    left: float
    right: float
    low: float
    high: float
    columns: int
    rows: int

    def column(self, x: float, per_cell: int = 1) -> int:
        """The column of x, or the one of its dots; outside the chart if x is."""
        share = (x - self.left) / (self.right - self.left)
        return math.floor(min(share * self.columns * per_cell, self.columns * per_cell - 0.5))

    def row(self, y: float, per_cell: int = 1) -> int:
        """The row of y from the top."""
        share = (self.high - y) / (self.high - self.low)
        return math.floor(min(share * self.rows * per_cell, self.rows * per_cell - 0.5))

    def middle(self, column: int) -> float:
        """x in the middle of a column."""
        return self.left + (self.right - self.left) * (column + 0.5) / self.columns


class Cells:
    """The inside of a chart; later drawings cover earlier ones."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self._cells = [[(" ", "")] * scale.columns for _ in range(scale.rows)]

    def put(self, column: int, row: int, character: str, color: str) -> None:
        if 0 <= column < self.scale.columns and 0 <= row < self.scale.rows:
            self._cells[row][column] = (character, color)

    def draw(self, drawing: Drawing) -> None:
        self._band(drawing)
        for level in reversed(drawing.levels):  # of two in one row the first is seen
            row = self.scale.row(level.y)
            for column in range(0, self.scale.columns, CELLS_PER_DASH):
                self.put(column, row, level.line.dash, level.line.color)
        for mark in drawing.marks:
            for row in range(self.scale.rows):
                self.put(self.scale.column(mark), row, "┊", "accent")
        reached = set[tuple[int, int]]()
        for curve in drawing.curves:
            for column, row, character in self._curve(curve):
                self.put(column, row, character, curve.color)
                reached.add((column, row))
        self._names(drawing.levels, reached)

    def rows(self) -> Iterator[list[Run]]:
        for cells in self._cells:
            yield merged(cells)

    def _band(self, drawing: Drawing) -> None:
        """Shade the band in the middle of each column, along the line between its points."""
        if len(drawing.band) < 2:
            return
        points = drawing.curves[0].points
        halves = [(x, half) for (x, _), half in zip(points, drawing.band, strict=True)]
        for column in range(self.scale.columns):
            x = self.scale.middle(column)
            y = height_at(points, x)
            half = height_at(halves, x)
            if half <= 0:
                continue
            top = self.scale.row(y + half)
            bottom = self.scale.row(y - half)
            for row in range(top, bottom + 1):
                self.put(column, row, "░", "secondary")

    def _names(self, levels: Sequence[Level], reached: set[tuple[int, int]]) -> None:
        """Write the names of levels on them, at the end where curves have reached fewer cells.

        Of two levels in one row the first has its name.
        """
        scale = self.scale
        named = set[int]()
        for level in levels:
            row = scale.row(level.y)
            name = f" {level.name} "
            if len(name) > scale.columns // 2:
                name = f" {level.name.partition(' ')[0]} "  # without its value
            if not level.name or row in named or len(name) > scale.columns // 2:
                continue
            named.add(row)
            covered = {
                begin: sum((column, row) in reached for column in range(begin, begin + len(name)))
                for begin in (scale.columns - len(name), 0)
            }
            begin = min(covered, key=covered.__getitem__)
            for column, letter in enumerate(name, begin):
                self.put(column, row, letter, level.line.color)

    def _curve(self, curve: Curve) -> Iterator[tuple[int, int, str]]:
        """The cells of a curve, each with its column and row."""
        scale = self.scale
        dots = Dots(scale.columns, scale.rows)
        places = [(scale.column(x, 2), scale.row(y, 4)) for x, y in curve.points]
        for place, following in zip(places, places[1:] or places, strict=False):
            dots.line(*place, *following)
        for row, line in enumerate(dots.lines):
            for column, character in enumerate(line):
                if character != " ":
                    yield column, row, character


def height_at(points: Sequence[Point], x: float) -> float:
    """y at some x, on the line between points; before the first and after the last, theirs."""
    at = bisect_right(points, x, key=lambda point: point[0])
    if at == 0 or at == len(points):
        return points[min(at, len(points) - 1)][1]
    x0, y0 = points[at - 1]
    x1, y1 = points[at]
    share = (x - x0) / (x1 - x0)
    return y0 + (y1 - y0) * share


def merged(cells: Sequence[tuple[str, str]]) -> list[Run]:
    """Cells as runs of one colour; a space takes the colour before it."""
    runs: list[Run] = []
    for character, color in cells:
        if runs and (color == runs[-1].color or character == " "):
            runs[-1] = Run(runs[-1].text + character, runs[-1].color)
        else:
            runs.append(Run(character, color))
    return runs


def chart_rows(drawing: Drawing, width: int, height: int) -> list[list[Run]]:
    """A drawing as rows of runs, at most `height`, each `width` cells wide."""
    scale, named = scale_of(drawing, width, height)
    cells = Cells(scale)
    cells.draw(drawing)
    wide = max(map(len, named.values()), default=0)
    shown = [
        [Run(f"{named.get(row, ''):>{wide}} {'┤' if row in named else '│'}", AXIS), *runs]
        for row, runs in enumerate(cells.rows())
    ]
    return [*shown, [Run(f"{'':>{wide}} └{_x_axis(cells.scale)}", AXIS)]][:height]


def scale_of(drawing: Drawing, width: int, height: int) -> tuple[Scale, dict[int, str]]:
    """The scale of a drawing, and the labels of its y axis by their rows."""
    rows = max(1, height - 1)
    points = [point for curve in drawing.curves for point in curve.points]
    values = [*(y for _, y in points), *drawing.fitted]
    pad = 0.06 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 0.5
    low = min(values) - pad
    high = max(values) + pad
    left = min(x for x, _ in points) if drawing.left is None else drawing.left
    right = max(x for x, _ in points) if drawing.right is None else drawing.right
    right = max(right, left + 1, left * (1 + 1e-9))
    several = (nice_ticks(low, high, about) for about in range(min(5, max(2, rows // 2)), 2 * rows))
    ticks = next((ticks for ticks in several if len(ticks) > 1), [])
    labels = tick_labels(ticks)
    wide = max(map(len, labels), default=0)
    scale = Scale(left, right, low, high, max(2, width - wide - 2), rows)
    return scale, {scale.row(tick): label for tick, label in zip(ticks, labels, strict=True)}


def _x_axis(scale: Scale) -> str:
    """The line under a chart, with numbers in it, each under its x."""
    axis = ["─"] * scale.columns
    for tick, label in x_ticks(scale):
        end = scale.column(tick)
        begin = min(max(0, end - len(label) // 2), scale.columns - len(label))
        axis[begin : begin + len(label)] = label
    return "".join(axis)


def x_ticks(scale: Scale) -> list[tuple[float, str]]:
    """Places and labels on the x axis; episodes are counted, so no number stands between two of them."""
    cells = scale.columns / (scale.right - scale.left)
    for about in (4, 3, 2, 1):
        ticks = nice_ticks(scale.left, scale.right, about, whole=True)
        labels = tick_labels(ticks)
        widest = max(map(len, labels), default=0)
        if len(ticks) > 1 and (ticks[1] - ticks[0]) * cells <= widest + 1.5:
            continue
        # A label that would be pushed in at either end would stand at another place.
        margin = widest / 2 / cells
        named = zip(ticks, labels, strict=True)
        return [
            (tick, label)
            for tick, label in named
            if scale.left + margin <= tick <= scale.right - margin
        ]
    return []


def nice_ticks(low: float, high: float, about: int, *, whole: bool = False) -> list[float]:
    """Round numbers between two bounds, about `about` of them: multiples of 1, 2 or 5 times a power of ten."""
    raw = max((high - low) / about, 1.0 if whole else 0.0)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step)
    last = math.floor(high / step)
    digits = 2 - math.floor(math.log10(step))
    return [round(index * step, digits) for index in range(first, last + 1)]


CHART_S = 1.0
"""Least number of seconds between two drawings."""


class Plot(Widget):
    DEFAULT_CSS = """
    Plot { height: 1fr; }
    """

    def __init__(self, wait: str, *, id: str | None = None) -> None:
        """`wait` stands in place of a chart until there is one."""
        super().__init__(id=id)
        self._wait = wait
        self._of: object = None
        self._make: Callable[[], Drawing | None] = lambda: None
        self._drawing: Drawing | None = None
        self._drawn: tuple[object, Size] | None = None
        self._drawn_at = 0.0
        self._strips: list[Strip] | None = None
        """The painted rows; None: they have to be made."""
        self.due = False
        """True while a drawing waits for its time."""

    def is_drawn(self, of: object) -> bool:
        """True if the chart of something is drawn for the present size."""
        return self._drawn == (of, self.size)

    def show(
        self, of: object, make: Callable[[], Drawing | None], *, at_once: bool = False
    ) -> None:
        """Draw a subject: at once, or `CHART_S` after the drawing before.

        Args:
            of: the subject of the chart; the same subject is drawn once for a size.
            make: makes the drawing, or None if there is nothing to draw yet.
            at_once: draw now, because a person waits for it.
        """
        self._of = of
        self._make = make
        is_time = time.monotonic() >= self._drawn_at + CHART_S
        if at_once or (is_time and self.is_attached and self.screen.is_current):
            self._draw()
        elif not self.due and not self.is_drawn(of):
            self.due = True
            self.set_timer(CHART_S, self._draw_in_time)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._draw()

    def _draw_in_time(self) -> None:
        self.due = False
        if self.is_attached:
            self.show(self._of, self._make)  # later, if another screen lies above

    def _draw(self) -> None:
        if not self.size or not self.is_attached or self.is_drawn(self._of):
            return
        self._drawing = self._make()
        self._drawn_at = time.monotonic()
        # What is hidden is drawn again, even if it is the same.
        self._drawn = None if self._drawing is None else (self._of, self.size)
        self._strips = None
        self.refresh()

    def notify_style_update(self) -> None:
        """Draw again in the new colours."""
        super().notify_style_update()
        self._strips = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if self._strips is None:
            width, height = self.size
            rows = self._waiting(width, height)
            if self._drawing is not None:
                rows = chart_rows(self._drawing, width, height)
            self._strips = [self._strip(row, width) for row in rows]
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self.rich_style)

    def _waiting(self, width: int, height: int) -> list[list[Run]]:
        blank: list[Run] = []
        return [blank] * ((height - 1) // 2) + [[Run(self._wait[:width].center(width), "aside")]]

    def _strip(self, row: Sequence[Run], width: int) -> Strip:
        colors, base = plot_colors(self.app.theme_variables), self.rich_style
        segments = []
        for run in row:
            color = colors.get(run.color)
            # Among a terminal's own colours there is none between text and ground.
            is_aside = color is not None and "%" in color
            style = base + (Style(dim=True) if is_aside else Style(color=color))
            segments.append(Segment(run.text, style))
        return Strip(segments).adjust_cell_length(width, base)
