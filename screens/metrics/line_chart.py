"""A small chart as text: a line in Braille dots, a band of error, healthy bounds and marks, with labelled axes.

It draws in about a millisecond and needs no library, so that a screen can have ten of them; `return_chart` draws the
large one. Line, band, bounds and marks are told by their glyphs, colour only helps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content

from llamagym_tui.screens.widgets.numbers import plain

GUTTER = 8
"""Cells for the labels of the y axis, its line included."""
NARROWEST = 20
"""Cells that a sentence needs, broken."""
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Braille dots of a cell by column and row."""
LINE, BAND, BOUND, MARK, AXIS = "$primary", "$primary 45%", "$success", "$accent", "$foreground 60%"
Cells = dict[tuple[int, int], tuple[str, str]]
"""Glyph and style by column and row."""


class Series(NamedTuple):
    """What a chart shows."""

    points: Sequence[tuple[float, float]]
    """x and y, by rising x; values that are not finite are left out."""
    errors: Sequence[float] = ()
    """Half the height of the band at each point; empty: no band."""
    bounds: Sequence[float] = ()
    """Healthy bounds; drawn where they are not far off."""
    marks: Sequence[float] = ()
    """x of vertical lines."""


class Frame(NamedTuple):
    """Where the coordinates of a chart lie in its cells."""

    left: float
    right: float
    low: float
    high: float
    width: int
    height: int

    def column(self, x: float, dots: int = 1) -> int:
        """The column of an x, in units of 1 ÷ `dots` cells."""
        share = (x - self.left) / (self.right - self.left)
        return min(max(int(share * self.width * dots), 0), self.width * dots - 1)

    def row(self, y: float, dots: int = 1) -> int:
        """The row of a y from the top, in units of 1 ÷ `dots` cells."""
        share = (self.high - y) / (self.high - self.low)
        return min(max(int(share * self.height * dots), 0), self.height * dots - 1)


def chart(series: Series, width: int, height: int) -> Content:
    """The chart in exactly `height` rows of at most `width` cells; a sentence where there is nothing to draw yet."""
    points, errors = _finite(series)
    if len(points) < 2 or width < GUTTER + 8 or height < 3:
        return _told("The line begins with the second update.", width, height)
    frame = _frame(points, errors, series.bounds, width - GUTTER, height - 1)
    cells: Cells = {}
    _draw_bounds(cells, frame, series.bounds)
    _draw_band(cells, frame, points, errors)
    _draw_marks(cells, frame, series.marks)
    _draw_line(cells, frame, points)
    return Content("\n").join([*(_row(cells, frame, row) for row in range(frame.height)), _x_axis(frame)])


def _told(text: str, width: int, height: int) -> Content:
    """A text in the place of a chart; nothing where it has no room."""
    lines = Content.styled(text, AXIS).wrap(max(width, 1))
    fits = width >= NARROWEST and len(lines) <= height
    return Content("\n").join(((lines if fits else []) + [Content("")] * height)[:height])


def _finite(series: Series) -> tuple[list[tuple[float, float]], list[float]]:
    errors = series.errors or [0.0] * len(series.points)
    kept = [(point, error) for point, error in zip(series.points, errors, strict=True) if math.isfinite(point[1])]
    return [point for point, _ in kept], [error if math.isfinite(error) else 0.0 for _, error in kept]


def _frame(
    points: list[tuple[float, float]], errors: list[float], bounds: Sequence[float], width: int, height: int
) -> Frame:
    pairs = list(zip(points, errors, strict=True))
    low, high = min(y - error for (_, y), error in pairs), max(y + error for (_, y), error in pairs)
    span = high - low or abs(high) or 1.0
    near = [bound for bound in bounds if low - span <= bound <= high + span]
    low, high = min([low, *near]), max([high, *near])
    pad = 0.05 * (high - low) or 0.5 * span
    left, right = points[0][0], points[-1][0]
    return Frame(left, right if right > left else left + 1, low - pad, high + pad, width, height)


def _draw_bounds(cells: Cells, frame: Frame, bounds: Sequence[float]) -> None:
    for bound in bounds:
        if frame.low <= bound <= frame.high:
            for column in range(0, frame.width, 2):
                cells[column, frame.row(bound)] = ("╌", BOUND)


def _draw_band(cells: Cells, frame: Frame, points: list[tuple[float, float]], errors: list[float]) -> None:
    if not any(errors):
        return
    for column in range(frame.width):
        x = frame.left + (column + 0.5) / frame.width * (frame.right - frame.left)
        y, error = _at(points, errors, x)
        for row in range(frame.row(y + error), frame.row(y - error) + 1):
            cells[column, row] = ("░", BAND)


def _draw_marks(cells: Cells, frame: Frame, marks: Sequence[float]) -> None:
    for mark in marks:
        if frame.left <= mark <= frame.right:
            for row in range(frame.height):
                cells[frame.column(mark), row] = ("┊", MARK)


def _draw_line(cells: Cells, frame: Frame, points: list[tuple[float, float]]) -> None:
    dots: dict[tuple[int, int], int] = {}
    before: tuple[int, int] | None = None
    for x, y in points:
        here = frame.column(x, 2), frame.row(y, 4)
        for column, row in _between(before or here, here):
            cell = column // 2, row // 4
            dots[cell] = dots.get(cell, 0) | DOTS[column % 2][row % 4]
        before = here
    cells.update({cell: (chr(0x2800 + pattern), LINE) for cell, pattern in dots.items()})


def _between(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Dots on the way from one to another, both included."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (round(start[0] + (end[0] - start[0]) * step / steps), round(start[1] + (end[1] - start[1]) * step / steps))
        for step in range(steps + 1)
    ]


def _at(points: list[tuple[float, float]], errors: list[float], x: float) -> tuple[float, float]:
    """y and error at an x, along the line between its neighbours."""
    after = next((index for index, point in enumerate(points) if point[0] >= x), len(points) - 1)
    before = max(after - 1, 0)
    span = points[after][0] - points[before][0]
    share = (x - points[before][0]) / span if span else 0.0
    y = points[before][1] + share * (points[after][1] - points[before][1])
    return y, errors[before] + share * (errors[after] - errors[before])


def _row(cells: Cells, frame: Frame, row: int) -> Content:
    label = {0: frame.high, frame.height - 1: frame.low}.get(row)
    if row == frame.height // 2 and frame.height >= 5:
        label = frame.high - (row + 0.5) / frame.height * (frame.high - frame.low)
    pieces: list[tuple[str, str]] = [(f"{'' if label is None else plain(label):>{GUTTER - 1}}│", AXIS)]
    for column in range(frame.width):
        glyph, style = cells.get((column, row), (" ", AXIS))
        if pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + glyph, style)
        else:
            pieces.append((glyph, style))
    return Content.assemble(*pieces)


def _x_axis(frame: Frame) -> Content:
    first, last = f"{frame.left:,.0f}", f"{frame.right:,.0f} episodes"
    gap = max(1, frame.width - len(first) - len(last))
    return Content.styled(f"{'':>{GUTTER}}{first}{' ' * gap}{last}", AXIS)
