"""Two past runs compared: curves of mean return in one chart, results, and the settings that differ."""

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import evaluated_return, signed, thinned, with_unit
from llamagym_tui.screens.past_runs.run_table import RunRow, played_text
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.numbers import plain
from llamagym_tui.screens.widgets.plot import MARGIN_LEFT, Curve, Drawing, Plot, baseline_levels
from llamagym_tui.screens.widgets.sizes import TooSmall
from llamagym_tui.state.run_summary import RunSummary, differences

NAMES = ("A", "B")
STYLES = ("$primary", "$warning")
EVALUATED = "evaluated ±95%"
LINES = ("━", "•")
"""How each curve is drawn, so that they differ without colour."""
DOWN, UP = "Rows that have no room; pgdn and end, too.", "Rows above, home and pgup, too."


class CompareScreen(Screen[None]):
    CSS_PATH = "compare.tcss"
    BINDING_GROUP_TITLE = "Compare"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "scroll(1)", "More below", key_display="↓", priority=True, id="compare.down", tooltip=DOWN),
        Binding("up", "scroll(-1)", "Up", show=False, priority=True, id="compare.up", tooltip=UP),
        Binding("question_mark", "app.help", "Help", show=False, tooltip="What the keys do.", id="help"),
        Binding("escape", "dismiss", "Back", id="compare.leave", tooltip="Back to the runs."),
    ]

    def __init__(self, first: RunRow, second: RunRow) -> None:
        """A comparison of two runs whose events have been read."""
        super().__init__()
        self._rows = (first, second)

    @property
    def _summaries(self) -> tuple[RunSummary, RunSummary]:
        first, second = (row.summary or RunSummary() for row in self._rows)
        return first, second

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield Static(Content.styled(" COMPARE ", "bold $background on $accent"), id="compare-header", markup=False)
        yield Plot("", id="compare-chart")
        with VerticalScroll(id="compare-facts"):
            yield Static(id="compare-table", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#compare-facts").focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._lay_out)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Rows can be scrolled where there are more than have room."""
        if action == "scroll":
            return any(facts.max_scroll_y > 0 for facts in self.query("#compare-facts"))
        return True

    def action_scroll(self, by: int) -> None:
        self.query_one("#compare-facts").scroll_relative(y=by, animate=False)

    def _lay_out(self) -> None:
        table = self.query_one("#compare-table", Static)
        width = table.size.width or self.app.size.width
        table.update(Content("\n").join([*self._heads(width), *self._rows_of_table(width)]))
        self.call_after_refresh(self.refresh_bindings)
        # The chart gets what the table leaves.
        show = partial(self.query_one(Plot).show, self._rows, self._drawing, at_once=True)
        self.call_after_refresh(show)

    def _drawing(self) -> Drawing | None:
        """Both curves, the first with two dots a cell, from the first episode on."""
        found = []
        for index, summary in enumerate(self._summaries):
            points = thinned(summary.curve, (2, 1)[index] * max(20, self.size.width - MARGIN_LEFT))
            color = STYLES[index].removeprefix("$")
            found.append(Curve([(p.episode, p.mean_return) for p in points], color, ("", LINES[1])[index]))
        known = self._summaries[0].baselines  # of the same game
        began = [summary.returns.start for summary in self._summaries if summary.returns.start]
        drawing = Drawing(found, levels=baseline_levels(known), marks=began, fitted=[*known.values()], left=0.0)
        return drawing if any(curve.points for curve in found) else None

    def _heads(self, width: int) -> list[Content]:
        return [
            Content.assemble(
                (f"{LINES[index]} {NAMES[index]} ", f"bold {STYLES[index]}"),
                (f"{row.info.started_at:%d %b %H:%M} · {one_line(row.agent)} · {row.ending}", "bold"),
                (f" · {one_line(row.info.run_dir.name)}", "$foreground 60%"),
            ).truncate(width, ellipsis=True)
            for index, row in enumerate(self._rows)
        ]

    def _rows_of_table(self, width: int) -> list[Content]:
        """How the runs went, and the settings that differ."""
        first, second = self._summaries
        configs = [row.info.config for row in self._rows]
        results = {
            "": NAMES,
            "return at the end": (_at_end(first), _at_end(second)),
            EVALUATED: (_evaluated(first), _evaluated(second)),
            "played": (played_text(first), played_text(second)),
        }
        if known := ", ".join(f"{name} {plain(value)}" for name, value in first.baselines.items()):
            results["baselines"] = (known, known)
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


def _at_end(summary: RunSummary) -> str:
    mean = summary.mean_return
    return "none" if mean is None else with_unit(signed(mean), summary.return_unit)


def _evaluated(summary: RunSummary) -> str:
    found = summary.evaluation
    return "not evaluated" if found is None else with_unit(evaluated_return(found).text, summary.return_unit)
