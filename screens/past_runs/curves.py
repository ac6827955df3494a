"""The curves of any number of runs in one chart: how smooth, between which episodes, and what is under the cursor.

A curve is that of one run, or the mean over runs that differ in seed only, with its standard error over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase

from textual.events import MouseMove, MouseScrollDown, MouseScrollUp
from textual.message import Message

from llamagym_tui.returns import CurvePoint, averaged, margin, plus_minus, thinned
from llamagym_tui.screens.past_runs.run_table import RunRow
from llamagym_tui.screens.widgets.chart_cells import (
    Curve,
    Drawing,
    Level,
    line_of,
    scale_of,
    within,
)
from llamagym_tui.screens.widgets.numbers import plain
from llamagym_tui.screens.widgets.plot import Plot

COLORS = ("primary", "warning", "success", "error", "accent", "foreground")
"""Names of the colours of a theme that curves have in turn; each has its letter, too."""
SMOOTHINGS = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0)
"""By how many times more episodes a point can be the mean of than in the playground's chart."""
USUAL = SMOOTHINGS.index(1.0)
ZOOM = 2.0
"""By how much a zoom enlarges."""
FEWEST = 10.0
"""Episodes that are shown at least."""
EDGE = "·"
"""How the edges of the band around a mean over seeds are drawn."""


@dataclass(frozen=True)
class Side:
    """One curve: a run, or runs that differ in seed only."""

    index: int
    """Its place among those that are compared, from 0."""
    rows: Sequence[RunRow]
    """By their seeds; of each the events have been read."""

    @property
    def name(self) -> str:
        """A to Z, then AA, AB and so on."""
        first, last = divmod(self.index, len(ascii_uppercase))
        return (ascii_uppercase[first - 1] if first else "") + ascii_uppercase[last]

    @property
    def color(self) -> str:
        return COLORS[self.index % len(COLORS)]

    @cached_property
    def usual(self) -> list[CurvePoint]:
        """The curve as smooth as the playground's; its figures are drawn whenever the cursor moves."""
        return self.curve(1.0)

    def curve(self, smoothing: float) -> list[CurvePoint]:
        """Mean return over episodes; empty: a run has none yet."""
        curves = [row.smoothed(smoothing) for row in self.rows]
        return averaged(curves) if len(curves) > 1 and all(curves) else curves[0]


class Curves(Plot):
    """A chart with a cursor, which the mouse moves; its wheel zooms."""

    class Looked(Message):
        """Cursor, zoom or smoothing are others now."""

    def __init__(self, *, id: str) -> None:
        super().__init__("No run has an episode yet.", id=id)
        self._sides: list[tuple[Side, list[CurvePoint]]] = []
        self._front: Side | None = None
        self._shown: tuple[float, float] | None = None
        """The episodes between which the chart is enlarged. None: all."""
        self.at: float | None = None
        """The episode under the cursor. None: there is no cursor yet."""
        self.smoothing = USUAL

    def show_sides(self, sides: Sequence[Side], front: Side | None = None) -> None:
        """Draw some curves, one of them before all others."""
        self._sides = [(side, side.curve(SMOOTHINGS[self.smoothing])) for side in sides]
        self._front = front
        self._show()

    def _show(self) -> None:
        of = (tuple(side for side, _ in self._sides), self._front, *self._view)
        self.show(of, self._make_drawing, at_once=True)
        self.post_message(self.Looked())

    @property
    def _view(self) -> tuple[object, ...]:
        return self._shown, self.at, self.smoothing

    @property
    def window(self) -> int:
        """Of how many episodes each point is the mean, at most."""
        by = SMOOTHINGS[self.smoothing]
        return max(row.window(by) for side, _ in self._sides for row in side.rows)

    @property
    def last(self) -> int:
        """The last episode of all curves."""
        return max((curve[-1].episode for _, curve in self._sides if curve), default=0)

    def _make_drawing(self) -> Drawing | None:
        """From the first episode on, with the baselines, unless it is enlarged; then as high as its part needs."""
        left, right = self._shown or (0.0, float(self.last))
        found = []
        in_front_last = sorted(self._sides, key=lambda each: each[0] is self._front)
        for side, curve in in_front_last:
            points = thinned(curve, 2 * max(20, self.size.width))
            for edge in (-1, 1) if len(side.rows) > 1 else ():
                ends = [(p.episode, p.mean_return + edge * p.stderr) for p in points]
                found.append(Curve(within(ends, left, right), side.color, EDGE))
            line = within([(p.episode, p.mean_return) for p in points], left, right)
            found.append(Curve(line, side.color, name=side.name))
        if not any(curve.points for curve in found):
            return None
        known = self._sides[0][0].rows[0].known.baselines  # of the same game
        rows = [row for side, _ in self._sides for row in side.rows]
        began = [start for row in rows if (start := row.known.returns.start)]
        fitted = [] if self._shown else [*known.values()]
        return Drawing(
            found,
            levels=[Level(y, line_of(name), f"{name} {plain(y)}") for name, y in known.items()],
            marks=[start for start in began if left <= start <= right],
            fitted=fitted,
            left=left,
            right=right,
            cursor=self.at,
        )

    def value(self, side: Side) -> str:
        """A curve's value at the cursor with its ±: half the 95 % interval, or the standard error over seeds."""
        curve = next(curve for each, curve in self._sides if each == side)
        if self.at is None or not curve or not curve[0].episode <= self.at <= curve[-1].episode:
            return "—"
        point = min(curve, key=lambda point: abs(point.episode - (self.at or 0.0)))
        half = point.stderr if len(side.rows) > 1 else margin(point.stderr)
        return plus_minus(point.mean_return, half)

    # The view

    def move(self, columns: float) -> None:
        """Move the cursor by some columns; it begins at the end, and at an edge takes what is shown along."""
        left, right = self._shown or (0.0, float(self.last))
        step = columns * (right - left) / max(1, self.size.width)
        at = right + min(step, 0.0) if self.at is None else self.at + step
        at = min(max(at, 0.0), float(self.last))
        self.at = at
        if self._shown and not left <= at <= right:
            by = at - (left if at < left else right)
            self._shown = (left + by, right + by)
        self._show()

    def zoom(self, times: float) -> None:
        """Show a part of the episodes that is so many times smaller, around the cursor; at most all of them."""
        left, right = self._shown or (0.0, float(self.last))
        middle = (left + right) / 2 if self.at is None else self.at
        wide = max((right - left) / times, min(FEWEST, self.last))
        # The cursor stays in its column.
        share = (middle - left) / ((right - left) or 1.0)
        begin = min(max(middle - share * wide, 0.0), max(self.last - wide, 0.0))
        self._shown = (begin, begin + wide) if wide < self.last else None
        self._show()

    def smooth(self, steps: int) -> None:
        self.smoothing = min(max(self.smoothing + steps, 0), len(SMOOTHINGS) - 1)
        self.show_sides([side for side, _ in self._sides], self._front)

    def on_mouse_move(self, event: MouseMove) -> None:
        self._point(event.x)

    def _point(self, x: int) -> None:
        if self._drawing is None or not self.content_size:
            return
        width, height = self.content_size
        scale, _ = scale_of(self._drawing, width, height)
        column = x - self.gutter.left - (width - scale.columns)
        if 0 <= column < scale.columns:
            self.at = min(scale.middle(column), self.last)
            self._show()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self._point(event.x)
        self.zoom(ZOOM)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self._point(event.x)
        self.zoom(1 / ZOOM)
