"""The metrics screen: a list of the figures of an update, and the chart of the chosen one."""

from itertools import groupby

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.screens.metrics.figure_chart import (
    FigureChart,
    figure_value,
    health,
    shown_figures,
)
from llamagym_tui.screens.widgets.fitted import Fitted, TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.run_header import RunHeader
from llamagym_tui.settings import FIGURES
from llamagym_tui.state.run import RunState


class FigureList(OptionList):
    HELP = "The figures of the last update. ok and out say whether they are healthy; ↑ and ↓ choose one to chart."


class MetricsScreen(Fitted[None]):
    CSS_PATH = "metrics.tcss"
    BINDING_GROUP_TITLE = "Metrics"
    HELP = "The figures of the updates. docs/METRICS.md has the formulas."
    BINDINGS = [
        Binding("escape,m,q", "dismiss", "Back", tooltip="Back to the run.", id="metrics.back"),
        Binding(
            "question_mark",
            "app.help",
            "Help",
            tooltip="Explain keys and figures.",
            id="help",
            key_display="?",
        ),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._listed: tuple[object, object] | None = None

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield RunHeader(self._state, id="run-header")
        with Horizontal(id="metrics"):
            yield FigureList(id="figure-list", markup=False)
            yield FigureChart(self._state, id="figure-chart")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FigureList).focus()
        self.show(self._state)

    def show(self, state: RunState) -> None:
        self._state = state
        self.query_one(RunHeader).show(state)
        chart = self.query_one(FigureChart)
        chart.show(state, chart.field)
        if self._listed == (state.history, state.settings):
            return
        self._listed = (state.history, state.settings)
        fields = shown_figures(state.config, state.settings)
        figures = self.query_one(FigureList)
        if tuple(option.id for option in figures.options if option.id) != fields:
            # Another learner has other figures.
            figures.set_options(_grouped(fields))
            shown = chart.field if chart.field in fields else fields[0]
            figures.highlighted = figures.get_option_index(shown)
        for field in fields:
            figures.replace_option_prompt(field, _line(state, field))

    @on(OptionList.OptionHighlighted)
    def choose(self, event: OptionList.OptionHighlighted) -> None:
        if event.option.id is not None:
            self.query_one(FigureChart).show(self._state, event.option.id)


def _grouped(fields: tuple[str, ...]) -> list[Option]:
    """Figures under the titles of their groups."""
    options = []
    for group, of_group in groupby(fields, key=lambda field: FIGURES[field].group):
        options.append(Option(Content.styled(group, "bold $primary"), disabled=True))
        options += [Option(FIGURES[field].short, id=field) for field in of_group]
    return options


def _line(state: RunState, field: str) -> Content:
    name = f"{FIGURES[field].short:<12}"
    if state.stats is None:
        return Content.styled(name, ASIDE)
    value = (f"{figure_value(state.stats, field):<10}", "bold")
    return Content.assemble((name, ASIDE), value, health(field, state.stats).badge)
