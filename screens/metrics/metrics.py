"""The metrics screen: every figure of PPO's updates with its chart, its meaning, and whether it is healthy.

A list, in four groups, chooses the figure whose chart is large; where there is room small charts stand below it.
"""

from itertools import groupby

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.config import FIGURES
from llamagym_tui.config.figures import FigureText
from llamagym_tui.screens.metrics.figure_health import shown_figures
from llamagym_tui.screens.metrics.figure_wall import (
    FigureChart,
    FigureWall,
    badge,
    figure_value,
    present_health,
)
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.fitted import Fitted, TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.run_header import RunHeader
from llamagym_tui.state.run import RunState


class FigureList(OptionList):
    HELP = "Figures of the last update. ↑ and ↓ choose the one whose chart is shown; ok and out: whether it is healthy."


class MetricsScreen(Fitted[None]):
    CSS_PATH = "metrics.tcss"
    BINDING_GROUP_TITLE = "Metrics"
    HELP = "Every figure of PPO's updates. docs/METRICS.md has the formulas."
    BINDINGS = [
        Binding(
            "slash",
            "find",
            "Find",
            tooltip="Only figures in whose name or meaning words are.",
            id="metrics.find",
            key_display="/",
        ),
        Binding(
            "escape,m,q",
            "back",
            "Back",
            tooltip="Back to the run; from a search, to all figures.",
            id="metrics.back",
        ),
        Binding(
            "question_mark",
            "app.help",
            "Help",
            tooltip="What keys and figures mean.",
            id="help",
            key_display="?",
        ),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._listed: object = None
        self._changed: object = None

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield RunHeader(self._state, id="run-header")
        with Horizontal(id="metrics"):
            yield FigureList(id="figure-list", markup=False)
            with Vertical(id="charts"):
                yield FigureChart(self._state, id="figure-chart")
                yield FigureWall(id="figure-wall")
        yield SentenceInput(
            id="figure-words", placeholder="words of a figure; enter: the list; esc: all"
        )
        yield KeyBar()

    def on_mount(self) -> None:
        """The small charts follow the first paint."""
        self._list_figures()
        self.query_one(FigureList).focus()
        self.call_after_refresh(lambda: self.show(self._state))

    def action_find(self) -> None:
        self.add_class("-finding")
        self.query_one(SentenceInput).focus()

    def action_back(self) -> None:
        """Close the field of a search, or else the screen."""
        if not self.has_class("-finding"):
            self.dismiss()
            return
        self.remove_class("-finding")
        self.query_one(SentenceInput).value = ""
        self.query_one(FigureList).focus()

    def show(self, state: RunState) -> None:
        self._state = state
        self.query_one(RunHeader).show(state)
        self.query_one(FigureWall).show(state)
        chart = self.query_one(FigureChart)
        chart.show(state, chart.field)
        self._list_figures()

    def _list_figures(self) -> None:
        state = self._state
        if self._listed is state.history and self._changed is state.settings:
            return
        self._listed = state.history
        self._changed = state.settings
        fields = self._found()
        figures = self.query_one(FigureList)
        if tuple(option.id for option in figures.options if option.id) != fields:
            # Another learner has other figures; the one that is shown stays if it has it.
            figures.set_options(_grouped(fields))
            shown = self.query_one(FigureChart).field
            if fields:
                figures.highlighted = figures.get_option_index(
                    shown if shown in fields else fields[0]
                )
        for field in fields:
            figures.replace_option_prompt(field, _line(state, field))

    def _found(self) -> tuple[str, ...]:
        """The figures in whose names or meanings all words are that are looked for."""
        words = self.query_one(SentenceInput).value.lower().split()
        fields = shown_figures(self._state.config, self._state.settings)
        return tuple(
            field for field in fields if all(word in _words(FIGURES[field]) for word in words)
        )

    @on(SentenceInput.Changed)
    def filter(self) -> None:
        self._listed = None
        self._list_figures()

    @on(SentenceInput.Submitted)
    def choose_among_found(self) -> None:
        self.query_one(FigureList).focus()

    @on(OptionList.OptionHighlighted)
    def choose(self, event: OptionList.OptionHighlighted) -> None:
        if event.option.id is not None:
            self.query_one(FigureChart).show(self._state, event.option.id)


def _words(text: FigureText) -> str:
    return f"{text.group} {text.title} {text.short} {text.meaning}".lower()


def _grouped(fields: tuple[str, ...]) -> list[Option]:
    """Figures under the titles of their groups, which cannot be chosen."""
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
    return Content.assemble((name, ASIDE), value, badge(present_health(state, field)))
