"""Home: an agent to play, a model to play with, and the past runs. Beside an open run it shows the past runs alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static

from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.runs.run_store import is_held
from llamagym_tui.screens.past_runs.agent_list import AgentList, ModelList
from llamagym_tui.screens.past_runs.compare import CompareScreen
from llamagym_tui.screens.past_runs.run_table import RunRow, RunTable, played_text
from llamagym_tui.screens.widgets.dialogs import CautiousDialog
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.fitted import Fitted, TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.state.returns import evaluated_return, with_unit
from llamagym_tui.user_files import discard, runs_dir


class HomeScreen(Fitted[None]):
    CSS_PATH = "home.tcss"
    BINDING_GROUP_TITLE = "Home"
    BINDINGS = [
        Binding("tab", "app.focus_next", "Next list", tooltip="To the next list.", id="home.next"),
        Binding(
            "c",
            "compare",
            "Compare",
            tooltip="The marked runs, or the marked and the chosen: curves and settings that differ.",
            id="runs.compare",
        ),
        Binding(
            "x,delete",
            "delete",
            "Delete",
            tooltip="Delete run and model, once confirmed.",
            id="runs.delete",
        ),
        Binding(
            "L",
            "app.lessons",
            "Lessons",
            tooltip="A dozen short guided experiments.",
            id="home.lessons",
        ),
        Binding(
            "slash",
            "filter('')",
            "Filter, ./file.py",
            tooltip="Filter agents and runs by their names; or type ./file.py or a Gymnasium id.",
            id="home.filter",
            key_display="/",
        ),
        Binding("full_stop", "filter('.')", "./file.py", id="home.file", show=False),
        Binding(
            "question_mark",
            "app.help",
            "Help",
            tooltip="What the keys do.",
            id="home.help",
            key_display="?",
        ),
        Binding("escape", "back", "Back", tooltip="End the filter; or go back.", id="home.back"),
        Binding("q", "quit", "Quit", tooltip="Leave.", id="home.quit"),
    ]

    @dataclass
    class AgentChosen(Message):
        spec: str
        model: str

    def __init__(self, agents: Mapping[str, type[AgentBase]], *, run_is_open: bool = False) -> None:
        """While a run is open, past runs are shown and compared only."""
        super().__init__()
        self._agents = agents
        self._run_is_open = run_is_open

    def compose(self) -> ComposeResult:
        yield TooSmall()
        title = Content.assemble(
            (" llamagym-tui ", "bold $background on $primary"), " a language model learns to play"
        )
        yield Static(title, id="home-title", markup=False)
        if not self._run_is_open:
            with Horizontal(id="home-top"):
                yield AgentList(self._agents, id="agents")
                yield ModelList(id="models")
        with Vertical(id="home-runs") as frame:
            frame.border_title = "runs"
            yield Static("looking for runs …", id="no-runs", markup=False)
            yield RunTable(id="runs", run_is_open=self._run_is_open)
            yield Static(id="runs-chosen", markup=False)
        yield SentenceInput(
            id="home-filter",
            placeholder="a name, ./file.py or a Gymnasium id",
            select_on_focus=False,
        )
        yield KeyBar()

    def on_mount(self) -> None:
        self._first_list.focus()

    @property
    def _first_list(self) -> OptionList | RunTable:
        return self._runs if self._run_is_open else self.query_one(AgentList)

    @property
    def _runs(self) -> RunTable:
        return self.query_one(RunTable)

    def on_screen_resume(self) -> None:
        self._runs.read()

    @on(RunTable.Changed)
    def _describe_runs(self) -> None:
        runs, empty = self._runs, self.query_one("#no-runs", Static)
        empty.display = not runs.shown
        runs.display = bool(runs.shown)
        if runs.loaded and not runs.shown:
            is_filtered = self.query_one(SentenceInput).value.strip()
            none = f"None in {one_line(str(runs_dir()))} yet: enter on an agent begins the first."
            empty.update("None matches." if is_filtered else none)
        chosen = self.query_one("#runs-chosen", Static)
        chosen.update("" if runs.chosen is None else chosen_text(runs.chosen))
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        has_agents = not self._run_is_open
        match action:
            case "compare":
                return True if len(self._to_compare()) > 1 else None
            case "delete":
                row = self._runs.chosen
                can = self._runs.has_focus and row is not None and not row.info.is_running
                return True if can and has_agents else None
            case "back":
                return not has_agents or self.query_one(SentenceInput).display
        return True

    async def action_quit(self) -> None:
        if self._run_is_open:
            self.dismiss()
        else:
            await self.app.run_action("quit")

    def action_back(self) -> None:
        field = self.query_one(SentenceInput)
        if not field.display:
            self.dismiss()
        field.value = ""
        field.display = False
        self._first_list.focus()

    # Runs

    def action_compare(self) -> None:
        compared = self._to_compare()
        games = list(dict.fromkeys(one_line(row.game) for row in compared))
        if len(games) > 1:  # Their returns have no axis in common.
            self.notify(
                f"{games[0]} and {games[1]} are different games; mark runs of one.",
                severity="warning",
            )
        else:
            self.app.push_screen(CompareScreen(compared))

    def _to_compare(self) -> list[RunRow]:
        """The marked runs, or the marked one and the chosen one."""
        runs = self._runs
        keys = [*runs.marked]
        if len(keys) == 1 and runs.chosen is not None and runs.chosen.key not in keys:
            keys.append(runs.chosen.key)
        by_key = {row.key: row for row in runs.shown if row.summary is not None}
        return [by_key[key] for key in keys if key in by_key]

    def action_delete(self) -> None:
        if (row := self._runs.chosen) is not None:
            question = f"{row.info.run_dir} will be deleted, with its model and its recording."
            dialog = CautiousDialog("delete this run?", question, yes="delete", no="keep")
            dialog.ask(self.app, partial(self._delete, row.info.run_dir))

    def _delete(self, run_dir: Path) -> None:
        try:
            discard_run(run_dir)
        except OSError as error:
            self.notify(f"The run cannot be deleted: {error}.", severity="error")
        self._runs.read()

    # Agents

    def action_filter(self, begun: str) -> None:
        field = self.query_one(SentenceInput)
        field.value = begun
        field.display = True
        field.cursor_position = len(field.value)
        field.focus()

    @on(SentenceInput.Changed)
    def _filter(self, event: SentenceInput.Changed) -> None:
        self._runs.filter(event.value.strip())
        for agents in self.query(AgentList):
            agents.filter(event.value.strip())

    @on(SentenceInput.Submitted)
    def _play_typed(self, event: SentenceInput.Submitted) -> None:
        """Play the agent that is left in the list, else the file or id."""
        if self._run_is_open:
            self._runs.focus()
            return
        agents = self.query_one(AgentList)
        spec = agents.highlighted_option.id if agents.highlighted_option else event.value.strip()
        self.post_message(self.AgentChosen(str(spec), self.query_one(ModelList).chosen))

    @on(OptionList.OptionSelected, "#agents")
    def _play(self, event: OptionList.OptionSelected) -> None:
        self.post_message(self.AgentChosen(str(event.option.id), self.query_one(ModelList).chosen))

    @on(OptionList.OptionSelected, "#models")
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.query_one(ModelList).choose(str(event.option.id))
        self.query_one(AgentList).focus()


def discard_run(run_dir: Path) -> None:
    """Raises OSError: a process has the run, or it cannot be deleted."""
    if is_held(run_dir):
        raise OSError("another process has the run")
    discard(run_dir)


def chosen_text(row: RunRow) -> str:
    """The facts of a run for which the table has no room."""
    if row.fault:
        return one_line(row.fault)
    config = row.info.config
    parts = [row.info.about, config.agent, config.model, f"seed {config.seed}", config.origin]
    if (summary := row.summary) is not None:
        parts.append(played_text(summary))
        if (evaluation := summary.evaluation) is not None:
            how = "greedy" if evaluation.greedy else "sampled"
            text = with_unit(evaluated_return(evaluation).text, summary.return_unit)
            parts.append(f"evaluated {text} ({how})")
    parts += [row.info.standing, str(row.info.run_dir)]
    return one_line(" · ".join(filter(None, parts)))
