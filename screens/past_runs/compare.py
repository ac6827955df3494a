"""Past runs of one game compared: their curves in one chart, a line of results each, the settings that differ."""

from collections.abc import Sequence
from string import ascii_uppercase

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import DataTable

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.past_runs.run_table import RunRow, played_text
from llamagym_tui.screens.widgets.chart import Curve, Drawing, Plot, baseline_levels
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted
from llamagym_tui.screens.widgets.look import ASIDE, heading
from llamagym_tui.screens.widgets.numbers import best_first
from llamagym_tui.state.returns import evaluated_return, thinned
from llamagym_tui.state.run_summary import differences

COLORS = ("primary", "warning", "success", "error", "accent", "foreground")
"""The theme's colours for the curves, in turn."""


class CompareScreen(Fitted[None]):
    CSS_PATH = "compare.tcss"
    BINDING_GROUP_TITLE = "Compare"
    BINDINGS = [
        HELP_KEY,
        Binding("escape,q", "dismiss", "Back", tooltip="Back to the runs.", id="compare.leave"),
    ]

    def __init__(self, compared: Sequence[RunRow]) -> None:
        super().__init__()
        self._rows = compared
        self._names = [ascii_uppercase[at % 26] for at in range(len(compared))]
        self._colors = [COLORS[at % len(COLORS)] for at in range(len(compared))]
        self._front = 0
        """The run whose curve is drawn above the others."""

    def body(self) -> ComposeResult:
        first = self._rows[0]
        unit = f" in {one_line(first.known.return_unit)}" if first.known.return_unit else ""
        title = heading("COMPARE", "", f" mean return of {one_line(first.game)}{unit}")
        yield Words(title, id="compare-header")
        yield Plot("No run has an episode yet.", id="compare-chart")
        yield DataTable[Text](id="compare-runs", cursor_type="row")
        with VerticalScroll(id="compare-facts"):
            text = Content("\n").join(self._settings_lines())
            yield Words(text, id="compare-settings")

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for title in ("", "run", "at the end", "evaluated", "played"):
            table.add_column(title)
        for name, color, row in zip(self._names, self._colors, self._rows, strict=True):
            texts = [Text(one_line(text)) for text in results(row)]
            table.add_row(
                Text(name, f"bold {self.app.theme_variables[color].removeprefix('ansi_')}"), *texts
            )
        table.focus()
        self._show_curves()

    @on(DataTable.RowHighlighted)
    def _bring_to_front(self, event: DataTable.RowHighlighted) -> None:
        self._front = event.cursor_row
        self._show_curves()

    def _show_curves(self) -> None:
        self.query_one(Plot).show(self._front, self._drawing, at_once=True)

    def _drawing(self) -> Drawing | None:
        """The curves with the baselines of the game, from the first episode on."""
        width = 2 * max(20, self.size.width)
        curves = []
        for row, color in zip(self._rows, self._colors, strict=True):
            points = thinned(row.known.curve, width)
            curves.append(Curve([(each.episode, each.mean_return) for each in points], color))
        if not any(curve.points for curve in curves):
            return None
        curves.append(curves.pop(self._front))
        return Drawing(
            curves,
            levels=baseline_levels(best_first(self._rows[0].known.baselines)),
            marks=[(start, "") for row in self._rows if (start := row.known.returns.start)],
            left=0.0,
        )

    def _settings_lines(self) -> list[Content]:
        """The settings that differ, each value with the letters of its runs."""
        configs = [row.info.config for row in self._rows]
        found = differences(configs, [row.known.changes for row in self._rows])
        title = "Settings that differ:" if found else "All settings are the same."
        lines = [Content.styled(title, ASIDE)]
        width = max(map(len, found), default=0) + 2
        for setting, values in found.items():
            parts = [Content.styled(f"{setting:<{width}}", ASIDE)]
            for value in dict.fromkeys(values):
                for name, color, each in zip(self._names, self._colors, values, strict=True):
                    if each == value:
                        parts.append(Content.styled(f"{name} ", f"bold ${color}"))
                parts.append(Content(f"{one_line(value)}  "))
            lines.append(Content("").join(parts))
        return lines


def results(row: RunRow) -> list[str]:
    """The name of a run, its last mean return, its last evaluation, its length."""
    info, known = row.info, row.known
    name = f"{info.started_at:%d %b %H:%M} {info.name}" if info.name else info.run_dir.name
    evaluated = known.evaluation
    return [
        f"{name} · {row.ending}",
        "none" if known.recent is None else known.recent.text,
        "—" if evaluated is None else evaluated_return(evaluated).text,
        played_text(known),
    ]
