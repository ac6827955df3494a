"""Home: an agent to play, a model to play with, and the recent runs, to resume or to replay."""

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static

from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.screens.past_runs.agent_list import AgentList, ModelList
from llamagym_tui.screens.past_runs.run_list import RunList
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.sentence_input import SentenceInput
from llamagym_tui.screens.widgets.sizes import Fitted, TooSmall

RECENT_RUNS = 20
"""Runs that home lists; the screen of runs has all."""


class HomeScreen(Fitted[None]):
    CSS_PATH = "home.tcss"
    BINDING_GROUP_TITLE = "Home"
    BINDINGS = [
        Binding("tab", "app.focus_next", "Next list", tooltip="To the next list.", id="home.next"),
        Binding(
            "L",
            "app.lessons",
            "Lessons",
            tooltip="A dozen short guided experiments.",
            id="home.lessons",
        ),
        Binding(
            "l",
            "app.runs",
            "All runs",
            tooltip="All past runs: sort them, compare some.",
            id="home.runs",
        ),
        Binding(
            "d",
            "demonstrations",
            "Demonstrations",
            tooltip="Demonstrations of the chosen agent: browse, edit, delete.",
            id="home.demonstrations",
        ),
        Binding(
            "slash",
            "filter('')",
            "Filter, ./file.py",
            tooltip="Agents, models and runs by a part of their names.",
            id="home.filter",
            key_display="/",
        ),
        Binding(
            "full_stop",
            "filter('.')",
            "./file.py",
            tooltip="An agent by ./file.py, or by a Gymnasium id.",
            id="home.file",
            show=False,
        ),
        Binding(
            "question_mark",
            "app.help",
            "Help",
            tooltip="What the keys do.",
            id="home.help",
            key_display="?",
        ),
        Binding(
            "escape",
            "filter(None)",
            "All",
            tooltip="No filter any more.",
            id="home.all",
            show=False,
        ),
        Binding("q", "app.quit", "Quit", tooltip="Leave.", id="home.quit"),
    ]

    @dataclass
    class AgentChosen(Message):
        spec: str
        model: str

    @dataclass
    class DemonstrationsRequested(Message):
        spec: str

    REFUSED_IN_BROWSER: ClassVar = {"watch": {"demonstrations"}}
    """These are read, edited and deleted on disk."""

    def __init__(self, agents: dict[str, type[AgentBase]]) -> None:
        super().__init__()
        self._agents = agents

    def compose(self) -> ComposeResult:
        yield TooSmall()
        title = Content.assemble(
            (" llamagym-tui ", "bold $background on $primary"), " a language model learns to play"
        )
        yield Static(title, id="home-title", markup=False)
        with Horizontal(id="home-top"):
            yield AgentList(self._agents, id="agents")
            yield ModelList(id="models")
        with Vertical(id="home-runs") as frame:
            frame.border_title = "recent runs"
            runs = RunList(at_most=RECENT_RUNS, id="runs")
            yield runs.heading
            yield Static("looking for runs …", id="no-runs", markup=False)
            yield runs
        yield SentenceInput(
            id="home-filter",
            placeholder="a name, ./file.py or a Gymnasium id",
            select_on_focus=False,
        )
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(AgentList).focus()

    def on_screen_resume(self) -> None:
        self.query_one(RunList).read()

    @on(RunList.Changed)
    def show_runs(self) -> None:
        runs, empty = self.query_one(RunList), self.query_one("#no-runs", Static)
        empty.display = not runs.rows
        runs.display = bool(runs.rows)
        runs.heading.display = bool(runs.rows)
        if runs.loaded and not runs.rows:
            is_filtered = self.query_one(SentenceInput).value.strip()
            empty.update(
                "None matches." if is_filtered else "None yet: enter on an agent begins the first."
            )

    def action_filter(self, begun: str | None) -> None:
        """Let more be typed after what is; None: no filter any more."""
        field = self.query_one(SentenceInput)
        field.value = begun or ""
        field.display = begun is not None
        field.cursor_position = len(field.value)
        (self.query_one(AgentList) if begun is None else field).focus()

    @on(SentenceInput.Changed)
    def filter(self, event: SentenceInput.Changed) -> None:
        for found in (
            self.query_one(AgentList),
            self.query_one(RunList),
            self.query_one(ModelList),
        ):
            found.filter(event.value.strip())

    @on(SentenceInput.Submitted)
    def play_typed(self, event: SentenceInput.Submitted) -> None:
        """Play the agent that is left in the list; or choose such a model; or else play the file or id."""
        agents, models = self.query_one(AgentList), self.query_one(ModelList)
        if (
            not agents.option_count
            and models.filter(event.value.strip())
            and models.highlighted_option
        ):
            models.choose(str(models.highlighted_option.id))
            self.action_filter(None)
            return
        spec = agents.highlighted_option.id if agents.highlighted_option else event.value.strip()
        self.post_message(self.AgentChosen(str(spec), self.query_one(ModelList).chosen))

    def action_demonstrations(self) -> None:
        if (option := self.query_one(AgentList).highlighted_option) is not None:
            self.post_message(self.DemonstrationsRequested(str(option.id)))

    @on(OptionList.OptionSelected, "#agents")
    def play(self, event: OptionList.OptionSelected) -> None:
        self.post_message(self.AgentChosen(str(event.option.id), self.query_one(ModelList).chosen))

    @on(OptionList.OptionSelected, "#models")
    def choose(self, event: OptionList.OptionSelected) -> None:
        self.query_one(ModelList).choose(str(event.option.id))
        self.query_one(AgentList).focus()
