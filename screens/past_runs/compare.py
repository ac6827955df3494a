"""Two past runs beside each other: curves of mean return in one chart, results, and the settings that differ."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.returns import Point, evaluated_return, signed, thinned
from llamagym_tui.screens.past_runs.run_table import RunRow, played_text
from llamagym_tui.screens.playground.return_chart import MARGIN_LEFT, nice_ticks
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.literal import one_line
from llamagym_tui.screens.widgets.look import plot_colors
from llamagym_tui.screens.widgets.too_small import TooSmall
from llamagym_tui.state.run_summary import RunSummary, differences

NAMES = ("A", "B")
STYLES = ("$primary", "$warning")
EVALUATED = "evaluated ±95%"
LINES = ("━", "•")
"""How each curve is drawn, so that they are told apart without colour."""


class ChartPlace(Vertical):
    """Where the curves are; says when its size is another one."""

    class Resized(Message):
        """There is another size to draw for."""

    def on_resize(self) -> None:
        """Say so."""
        self.post_message(self.Resized())


class CompareScreen(Screen[None]):
    """Two runs."""

    CSS_PATH = "compare.tcss"
    BINDING_GROUP_TITLE = "Compare"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "down",
            "scroll(1)",
            "More below",
            key_display="↓",
            priority=True,
            tooltip="Rows that have no room; pgdn and end, too.",
            id="compare.down",
        ),
        Binding(
            "up",
            "scroll(-1)",
            "Up",
            show=False,
            priority=True,
            tooltip="Rows above, home and pgup, too.",
            id="compare.up",
        ),
        Binding("question_mark", "app.help", "Help", show=False, tooltip="What the keys do.", id="help"),
        Binding("escape", "leave", "Back", id="compare.leave", tooltip="Back to the runs."),
    ]

    def __init__(self, first: RunRow, second: RunRow) -> None:
        """A comparison of two runs whose events have been read."""
        super().__init__()
        self._rows = (first, second)
        self._plot: Any = None
        self._drawn_at: object = None

    @property
    def drawn(self) -> bool:
        """Whether the curves are there, at the size that the chart has now."""
        return self._plot is not None and self._drawn_at == self._plot.size

    @property
    def _summaries(self) -> tuple[RunSummary, RunSummary]:
        first, second = (row.summary or RunSummary() for row in self._rows)
        return first, second

    def compose(self) -> ComposeResult:
        """Curves above, what differs below."""
        yield TooSmall()
        yield Static(Content.styled(" COMPARE ", "bold $background on $accent"), id="compare-header")
        yield ChartPlace(id="compare-chart")
        with VerticalScroll(id="compare-facts"):
            yield Static(id="compare-table", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """The table has the keys."""
        self.query_one("#compare-facts").focus()

    def on_resize(self) -> None:
        """All of it is laid out by width."""
        self.call_after_refresh(self._lay_out)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Rows can be scrolled where there are more than have room."""
        if action == "scroll":
            return any(facts.max_scroll_y > 0 for facts in self.query("#compare-facts"))
        return True

    def action_scroll(self, by: int) -> None:
        """Rows further down, or up."""
        self.query_one("#compare-facts").scroll_relative(y=by, animate=False)

    def action_leave(self) -> None:
        """Back to the runs."""
        self.dismiss()

    def _lay_out(self) -> None:
        table = self.query_one("#compare-table", Static)
        width = table.size.width or self.app.size.width
        table.update(Content("\n").join([*self._heads(width), *self._rows_of_table(width)]))
        self.call_after_refresh(self.refresh_bindings)
        if self._plot is None:
            self.call_after_refresh(self._draw)  # the chart gets what the table leaves

    @work(exclusive=True)
    async def _draw(self) -> None:
        library = await asyncio.to_thread(importlib.import_module, "textual_plot")
        if self not in self.app.screen_stack:
            return  # It was left meanwhile.
        plot = library.PlotWidget(allow_pan_and_zoom=False)
        plot.can_focus = False
        await self.query_one("#compare-chart").mount(plot)
        if plot.children:
            plot.margin_left, plot.margin_bottom, plot.margin_top = MARGIN_LEFT, 1, 1
            self._plot = plot
            self.fill()

    @on(ChartPlace.Resized)
    def fill(self) -> None:
        """Draw the curves once the chart has its size."""
        if self._plot is not None:
            self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        curves = [summary.curve for summary in self._summaries]
        library, colors = importlib.import_module("textual_plot"), plot_colors(self.app.theme_variables)
        plot = self._plot
        with self.app.batch_update():
            plot.clear()
            if any(curves):
                self._scale(curves)
            for index, curve in enumerate(curves):
                points = thinned(curve, (2, 1)[index] * max(20, self.size.width - MARGIN_LEFT))
                if not points:
                    continue
                across, up = [point.episode for point in points], [point.mean_return for point in points]
                color = colors[STYLES[index].removeprefix("$")]
                if index:
                    plot.scatter(across, up, marker=LINES[1], marker_style=color)
                else:
                    plot.plot(across, up, line_style=color, hires_mode=library.HiResMode.BRAILLE)
        # The plot fits its canvas to its place only where a layout is asked for, and margins may just have moved it.
        plot.refresh(layout=True)
        self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        self._plot.refresh(layout=True)
        self._drawn_at = self._plot.size

    def _scale(self, curves: list[list[Point]]) -> None:
        values = [point.mean_return for curve in curves for point in curve]
        pad = 0.06 * (max(values) - min(values)) or 0.5
        low, high = min(values) - pad, max(values) + pad
        last = float(max(point.episode for curve in curves for point in curve))
        self._plot.set_ylimits(low, high)
        self._plot.set_yticks(nice_ticks(low, high, 4))
        self._plot.set_xlimits(0.0, last)
        self._plot.set_xticks(nice_ticks(0.0, 0.94 * last, 4))

    def _heads(self, width: int) -> list[Content]:
        """Which runs they are."""
        return [
            Content.assemble(
                (f"{LINES[index]} {NAMES[index]} ", f"bold {STYLES[index]}"),
                (f"{row.info.started_at:%d %b %H:%M} · {one_line(row.agent)} · {row.ending}", "bold"),
                (f" · {one_line(row.info.run_dir.name)}", "$foreground 60%"),
            ).truncate(width, ellipsis=True)
            for index, row in enumerate(self._rows)
        ]

    def _rows_of_table(self, width: int) -> list[Content]:
        """How the runs went, and the settings that differ, those of each beside the other's."""
        first, second = self._summaries
        configs = [row.info.config for row in self._rows]
        results = {
            "": NAMES,
            "return at the end": (_signed(first.mean_return), _signed(second.mean_return)),
            EVALUATED: (_evaluated(first), _evaluated(second)),
            "played": (played_text(first), played_text(second)),
        }
        if first.evaluation is second.evaluation is None:
            del results[EVALUATED]
        different = differences(configs[0], configs[1], (first.changes, second.changes))
        title = "Settings that differ:" if different else "All settings are the same."
        names = max(len(name) for name in (*results, *different)) + 2
        room = max(8, (width - names - 2) // 2)
        return [
            *[_line(name, pair, names, room) for name, pair in results.items()],
            Content.styled(title, "$foreground 60%"),
            *[_line(name, pair, names, room) for name, pair in different.items()],
        ]


def _line(name: str, pair: tuple[str, ...], names: int, room: int) -> Content:
    """A name and the value of each run; a value that is too long goes on below."""
    parts = [Content.styled(one_line(value), style).wrap(room) for value, style in zip(pair, STYLES, strict=True)]
    lines = []
    for index in range(max(map(len, parts))):
        left, right = (lines_of[index] if index < len(lines_of) else Content("") for lines_of in parts)
        head = Content.styled(f"{name if index == 0 else '':<{names}}", "$foreground 60%")
        lines.append(head + left.pad_right(max(0, room + 2 - left.cell_length)) + right)
    return Content("\n").join(lines)


def _signed(value: float | None) -> str:
    return "none" if value is None else signed(value)


def _evaluated(summary: RunSummary) -> str:
    return "not" if summary.evaluation is None else evaluated_return(summary.evaluation).text
