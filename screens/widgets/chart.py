"""A chart as cells of a terminal: curves, a band, dashed levels, marks, two axes.

One curve alone is a filled area, several are lines of Braille dots. The y axis stands on the left, the names of levels
on the right. `Plot` paints a chart at most every `CHART_S` seconds.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from llamagym_tui.game.pictures import Dots
from llamagym_tui.screens.widgets.numbers import plain, tick_labels
from llamagym_tui.state.texts import BARS

Point = tuple[float, float]
CELLS_PER_DASH = 2
"""Cells of a level for each of its dashes."""
AXIS = "aside"
"""The colour of axes and their labels."""
COLUMNS_PER_TICK = 8
"""Columns of the x axis for each of its labels, at least."""
FILL = "chart-fill"
"""The colour of the area under a curve."""
BAND = "chart-band"
"""The ground of a band."""
FAR = 1.0
"""Times the range of what was seen; a level further off stands at the edge of the chart, with an arrow."""


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
    "best": Line("success", "═"),
    "expert": Line("accent", "╌"),
    "random": Line("warning", "·"),
}
"""Lines of published mean returns, by the name of the player."""
OTHER = Line("foreground", "─")
"""The line of any other player."""
BOUND = Line("success", "╌")
"""The line of a healthy bound."""


class Level(NamedTuple):
    """A dashed horizontal line."""

    y: float
    line: Line
    name: str = ""
    """Stands to its right if there is room."""


def baseline_levels(known: Mapping[str, float]) -> list[Level]:
    """The levels of baselines, each named with its value."""
    return [Level(y, BASELINES.get(name, OTHER), f"{name} {plain(y)}") for name, y in known.items()]


class Drawing(NamedTuple):
    curves: Sequence[Curve]
    """At least one point among them."""
    band: Sequence[float] = ()
    """Half the height of the shade around the first curve, at each of its points."""
    levels: Sequence[Level] = ()
    marks: Sequence[tuple[float, str]] = ()
    """x and words of vertical lines."""
    left: float | None = None
    """Begin of the x axis; the first point by default."""


class Cell(NamedTuple):
    character: str
    color: str
    """Name of a colour of the theme."""
    ground: str = ""
    """Name of the colour behind it; empty: none."""

    @property
    def style(self) -> str:
        return f"${self.color} on ${self.ground}" if self.ground else f"${self.color}"


BLANK = Cell(" ", AXIS)


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
        """The row of y from the top; the first or the last if y is outside the chart."""
        share = max(0.0, (self.high - y) / (self.high - self.low))
        return math.floor(min(share * self.rows * per_cell, self.rows * per_cell - 0.5))

    def height(self, y: float) -> int:
        """The height of y above the bottom, in eighths of a row."""
        share = (y - self.low) / (self.high - self.low)
        return round(min(max(share, 0.0), 1.0) * self.rows * len(BARS))


def chart_rows(drawing: Drawing, width: int, height: int) -> list[list[Cell]]:
    """A drawing as rows of cells, at most `height`, each of `width`."""
    rows = max(1, height - 1)
    low, high = y_range(drawing)
    ticks = nice_ticks(low, high, min(5, max(3, rows // 2)))
    labels = tick_labels(ticks)
    before = max(map(len, labels), default=0) + 2
    texts = {level: _name(level, low, high) for level in drawing.levels}
    names = max(map(len, texts.values()), default=-1) + 1
    if 3 * names > width:
        texts = {
            level: _name(level._replace(name=level.name.partition(" ")[0]), low, high)
            for level in drawing.levels
        }
        names = max(map(len, texts.values()), default=-1) + 1
    if 3 * names > width:
        names = 0
    xs = [x for curve in drawing.curves for x, _ in curve.points]
    left = min(xs) if drawing.left is None else drawing.left
    right = max(*xs, left + 1, left * (1 + 1e-9))
    scale = Scale(left, right, low, high, max(2, width - before - names), rows)
    cells = [[BLANK] * scale.columns for _ in range(rows)]
    for column, row, cell in _inside(drawing, scale):
        if 0 <= column < scale.columns and 0 <= row < rows:
            cells[row][column] = _over(cells[row][column], cell)
    labelled = {scale.row(tick): label for tick, label in zip(ticks, labels, strict=True)}
    named = {scale.row(level.y): level for level in reversed(drawing.levels)}
    shown: list[list[Cell]] = []
    for row, inside in enumerate(cells):
        label = labelled.get(row, "")
        axis = f"{label:>{before - 2}} {'┤' if label else '│'}"
        level = named.get(row)
        name = f" {texts[level]}" if level else ""
        color = level.line.color if level else AXIS
        shown.append([*_cells(axis, AXIS), *inside, *_cells(name.ljust(names)[:names], color)])
    under = " " * (before - 1) + "└" + _x_axis(scale) + " " * names
    return [*shown, _cells(under, AXIS)][:height]


def _cells(text: str, color: str) -> list[Cell]:
    return [Cell(character, color) for character in text]


def _over(below: Cell, cell: Cell) -> Cell:
    """A cell drawn over another one: it stands on what fills the other."""
    if cell.ground or cell.character == BARS[-1]:
        return cell
    ground = FILL if below.character == BARS[-1] and below.color == FILL else below.ground
    return cell._replace(ground=ground)


def _name(level: Level, low: float, high: float) -> str:
    """The name of a level, with an arrow if the level is outside the chart."""
    if not level.name or low <= level.y <= high:
        return level.name
    return f"{level.name} {'↑' if level.y > high else '↓'}"


def y_range(drawing: Drawing) -> tuple[float, float]:
    """The least and the greatest y of a chart: those of its curves, of its band, and of levels that are not far off."""
    values = [y for curve in drawing.curves for _, y in curve.points]
    # The band is widest in the first episodes: there it may leave the chart.
    banded = list(zip(drawing.curves[0].points, drawing.band, strict=False))
    for (_, y), half in banded[len(banded) // 4 :]:
        values += [y - half, y + half]
    for level in sorted(drawing.levels, key=lambda level: abs(level.y - values[0])):
        low, high = min(values), max(values)
        room = FAR * (high - low) or math.inf
        if low - room <= level.y <= high + room:
            values.append(level.y)
    pad = 0.06 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 0.5
    return min(values) - pad, max(values) + pad


def _inside(drawing: Drawing, scale: Scale) -> Iterator[tuple[int, int, Cell]]:
    """The cells between the axes, each with its column and row; later ones cover earlier ones."""
    if drawing.band:
        yield from _band(drawing, scale)
    heights: dict[int, int] = {}
    if len(drawing.curves) == 1:
        heights = dict(_heights(drawing.curves[0], scale))
    yield from _area(heights, scale)
    for level in reversed(drawing.levels):  # of two in one row the first is seen
        if scale.low <= level.y <= scale.high:
            for column in range(0, scale.columns, CELLS_PER_DASH):
                yield column, scale.row(level.y), Cell(level.line.dash, level.line.color)
    if len(drawing.curves) == 1:
        yield from _top(heights, drawing.curves[0].color, scale)
    else:
        for curve in drawing.curves:
            yield from _dotted(curve, scale)
    yield from _marked(drawing.marks, scale)


def _heights(curve: Curve, scale: Scale) -> Iterator[tuple[int, int]]:
    """The columns of a curve, and its height in each, in eighths of a row."""
    for (x0, y0), (x1, y1) in pairwise(curve.points):
        first, last = scale.column(x0), scale.column(x1)
        for column in range(max(first, 0), min(last + 1, scale.columns)):
            share = (column - first) / max(1, last - first)
            yield column, scale.height(y0 + share * (y1 - y0))


def _area(heights: Mapping[int, int], scale: Scale) -> Iterator[tuple[int, int, Cell]]:
    """What is under a curve."""
    for column, height in heights.items():
        for row in range(height // len(BARS)):
            yield column, scale.rows - 1 - row, Cell(BARS[-1], FILL)


def _top(heights: Mapping[int, int], color: str, scale: Scale) -> Iterator[tuple[int, int, Cell]]:
    """The cell in which a curve is, in each column."""
    for column, height in heights.items():
        whole, eighths = divmod(max(height, 1) - 1, len(BARS))
        yield column, scale.rows - 1 - whole, Cell(BARS[eighths], color)


def _dotted(curve: Curve, scale: Scale) -> Iterator[tuple[int, int, Cell]]:
    """A curve in Braille dots."""
    dots = Dots(scale.columns, scale.rows)
    places = [(scale.column(x, 2), scale.row(y, 4)) for x, y in curve.points]
    for place, following in zip(places, places[1:] or places, strict=False):
        dots.line(*place, *following)
    for row, line in enumerate(dots.lines):
        for column, character in enumerate(line):
            if character != " ":
                yield column, row, Cell(character, curve.color)


def _marked(marks: Sequence[tuple[float, str]], scale: Scale) -> Iterator[tuple[int, int, Cell]]:
    """Vertical lines, and the words of the last one beside it, on the side that has the room."""
    for x, _ in marks:
        for row in range(scale.rows):
            yield scale.column(x), row, Cell("┊", "accent")
    if not marks:
        return
    x, words = marks[-1]
    column = scale.column(x)
    text = f" {words} "
    begin = column + 1 if column + len(text) < scale.columns else column - len(text)
    has_room = begin >= 0 and cell_len(text) == len(text)
    for offset, character in enumerate(text if words and has_room else ""):
        yield begin + offset, scale.rows - 1, Cell(character, "accent", "background")


def _band(drawing: Drawing, scale: Scale) -> Iterator[tuple[int, int, Cell]]:
    """The shade around the first curve, along the line between its points."""
    points = zip(drawing.curves[0].points, drawing.band, strict=True)
    for ((x0, y0), half0), ((x1, y1), half1) in pairwise(points):
        first, last = scale.column(x0), scale.column(x1)
        for column in range(first, last + 1):
            share = (column - first) / max(1, last - first)
            y = y0 + share * (y1 - y0)
            half = half0 + share * (half1 - half0)
            if half > 0:
                for row in range(scale.row(y + half), scale.row(y - half) + 1):
                    yield column, row, Cell(" ", AXIS, BAND)


def _x_axis(scale: Scale) -> str:
    """The line under a chart, with numbers in it, each under its x."""
    axis = ["─"] * scale.columns
    # Episodes are counted, so no number stands between two of them.
    ticks = nice_ticks(
        scale.left, scale.right, max(1, scale.columns // COLUMNS_PER_TICK), whole=True
    )
    for tick, label in zip(ticks, tick_labels(ticks), strict=True):
        begin = scale.column(tick) - len(label) // 2
        if 0 <= begin <= scale.columns - len(label):
            axis[begin : begin + len(label)] = label
    return "".join(axis)


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
        wait_s = self._drawn_at + CHART_S - time.monotonic()
        if at_once or wait_s <= 0:
            self._draw()
        elif not self.due and not self.is_drawn(of):
            self.due = True
            self.set_timer(wait_s, self._draw)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._draw()

    def _draw(self) -> None:
        self.due = False
        if not self.size or not self.is_attached or self.is_drawn(self._of):
            return
        self._drawing = self._make()
        self._drawn_at = time.monotonic()
        # What is hidden is drawn again, even if it is the same.
        self._drawn = None if self._drawing is None else (self._of, self.size)
        self.refresh()

    def render(self) -> Content:
        width, height = self.content_size
        if self._drawing is None:
            blank = "\n" * ((height - 1) // 2)
            return Content.styled(blank + self._wait[:width].center(width), "$aside")
        runs: list[str | tuple[str, str]] = []
        for row in chart_rows(self._drawing, width, height):
            for style, cells in groupby(row, key=lambda cell: cell.style):
                runs.append(("".join(cell.character for cell in cells), style))
            runs.append("\n")
        return Content.assemble(*runs[:-1])
