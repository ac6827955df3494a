"""A chart as a widget, painted at most every `CHART_S` seconds; what it draws: `chart_cells`."""

import time
from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from llamagym_tui.screens.widgets.chart_cells import Drawing, Run, chart_rows
from llamagym_tui.screens.widgets.look import own_styles, plot_colors

CHART_S = 1.0
"""Seconds between two drawings, at least."""


class Plot(Widget):
    DEFAULT_CSS = own_styles(__file__)

    def __init__(self, wait: str, *, id: str | None = None) -> None:
        """`wait` is shown in place of a chart that cannot be drawn yet."""
        super().__init__(id=id)
        self._wait = wait
        self._of: object = None
        self._make: Callable[[], Drawing | None] = lambda: None
        self._drawing: Drawing | None = None
        self._drawn: tuple[object, Size] | None = None
        self._drawn_at = 0.0
        self._strips: list[Strip] | None = None
        """The rows as they are painted; None: they have to be made."""
        self.due = False
        """Whether a drawing waits for its time."""

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
        """Another size needs other points."""
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
        """Colours changed."""
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
