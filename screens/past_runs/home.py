"""Home: a game to play, a model to play with, and the past runs. Beside an open run it shows the past runs alone.

A past run can be branched: a new run begins from one of its checkpoints.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.runs.branch import kept_updates
from llamagym_tui.runs.model_registry import BUNDLED, ENTRIES, is_here, size_in_words
from llamagym_tui.runs.run_store import is_held
from llamagym_tui.screens.past_runs.compare import CompareScreen
from llamagym_tui.screens.past_runs.run_table import RunRow, RunTable, played_text
from llamagym_tui.screens.widgets.choices import Choices
from llamagym_tui.screens.widgets.dialogs import CautiousDialog, Dialog
from llamagym_tui.screens.widgets.fields import SentenceInput, Words
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.settings import RunConfig
from llamagym_tui.settings.typed import assigned
from llamagym_tui.setup.catalog import missing
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.state.returns import evaluated_return, with_unit
from llamagym_tui.user_files import discard, runs_dir

LEARNT_MIN = {
    "blackjack": 1.5,
    "frozen_lake": 0.5,
    "kitchen": 1,
    "tic_tac_toe": 10,
    "cliff_walking": 1.2,
    "cart_pole": 3,
    "taxi": 4,
}
"""Minutes in which the bundled model learns a game by the defaults, as benchmarks/RESULTS.md has measured; in the order
in which games are listed."""


NO_RUNS = (
    "enter on a game: watch a model learn it, Blackjack in about a minute. Lessons are short guided experiments. "
    "Each run is kept here: replay it, resume it, compare it with others."
)


class AgentList(OptionList):
    BORDER_TITLE = "games"
    BINDING_GROUP_TITLE = "Games"
    BINDINGS = [
        Binding(
            "enter",
            "select",
            "Play",
            id="home.play",
            tooltip="Watch a model learn this game: a new run.",
        ),
    ]


class ModelList(Choices):
    BORDER_TITLE = "models"
    BORDER_SUBTITLE = "bundled ships with the app"
    BINDING_GROUP_TITLE = "Models"
    BINDINGS = [
        Binding(
            "enter",
            "select",
            "Choose",
            id="home.choose",
            tooltip="Play with this model from now on.",
        )
    ]


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
            "other_agent",
            "Other game",
            tooltip="Type ./file.py or a Gymnasium id.",
            id="home.other",
        ),
        HELP_KEY,
        Binding("escape", "back", "Back", tooltip="To the first list, or back.", id="home.back"),
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
        self._model = BUNDLED
        self.here: dict[str, bool] = {}
        """True for a model on this machine; empty until that is known."""

    def body(self) -> ComposeResult:
        title = Content.assemble(
            (" llamagym-tui ", "bold $background on $primary"), " a language model learns to play"
        )
        yield Words(title, id="home-title")
        if not self._run_is_open:
            with Horizontal(id="home-top"):
                easiest_first = dict.fromkeys((*LEARNT_MIN, *self._agents))
                names = [name for name in easiest_first if name in self._agents]
                games = [Option(agent_text(name, self._agents[name]), id=name) for name in names]
                yield AgentList(*games, id="agents", markup=False)
                yield ModelList(id="models", markup=False)
            yield SentenceInput(
                id="home-other", placeholder="/ another game: ./file.py, or a Gymnasium id"
            )
        with Vertical(id="home-runs") as frame:
            frame.border_title = "runs"
            yield Words("looking for runs …", id="no-runs")
            yield RunTable(run_is_open=self._run_is_open)
            yield Words(id="runs-chosen")

    def on_mount(self) -> None:
        self._first_list.focus()
        if not self._run_is_open:
            self._show_models()
            self._look_for_models()

    @property
    def _first_list(self) -> OptionList | RunTable:
        return self._runs if self._run_is_open else self.query_one(AgentList)

    @property
    def _runs(self) -> RunTable:
        return self.query_one(RunTable)

    def on_screen_resume(self) -> None:
        self._runs.read()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "compare":
                return True if len(self._to_compare()) > 1 else None
            case "delete":
                row = self._runs.chosen
                can = self._runs.has_focus and row is not None and not row.info.is_running
                return True if can and not self._run_is_open else None
            case "other_agent":
                return not self._run_is_open
        return True

    async def action_quit(self) -> None:
        if self._run_is_open:
            self.dismiss()
        else:
            await self.app.run_action("quit")

    def action_back(self) -> None:
        if self._run_is_open:
            self.dismiss()
        else:
            self._first_list.focus()

    # Runs

    @on(RunTable.Changed)
    def _describe_runs(self) -> None:
        runs, empty = self._runs, self.query_one("#no-runs", Words)
        empty.display = not runs.shown
        runs.display = bool(runs.shown)
        if runs.loaded and not runs.shown:
            empty.update(f"No run is in {one_line(str(runs_dir()))} yet.\n{NO_RUNS}")
        chosen = self.query_one("#runs-chosen", Words)
        chosen.update("" if runs.chosen is None else chosen_text(runs.chosen))
        self.refresh_bindings()

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

    # Agents and models

    def action_other_agent(self) -> None:
        self.query_one(SentenceInput).focus()

    @on(SentenceInput.Submitted)
    def _play_typed(self, event: SentenceInput.Submitted) -> None:
        if spec := event.value.strip():
            self.post_message(self.AgentChosen(spec, self._model))

    @on(OptionList.OptionSelected, "#agents")
    def _play(self, event: OptionList.OptionSelected) -> None:
        self.post_message(self.AgentChosen(str(event.option.id), self._model))

    @on(OptionList.OptionSelected, "#models")
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self._model = str(event.option.id)
        self._show_models()
        self.query_one(AgentList).focus()

    @work(exclusive=True, group="models")
    async def _look_for_models(self) -> None:
        names = [entry.name for entry in ENTRIES]
        self.here = dict(
            zip(names, await asyncio.to_thread(list, map(is_here, names)), strict=True)
        )
        self._show_models()

    def _show_models(self) -> None:
        """The models with their sizes; a mark stands before the chosen one."""
        lines = {}
        for entry in ENTRIES:
            is_chosen = entry.name == self._model
            where = "" if not self.here else "here" if self.here[entry.name] else "online"
            lines[entry.name] = Content.assemble(
                ("● " if is_chosen else "  ", "bold $accent"),
                f"{size_in_words(entry.parameters):>6} ",
                (f"{where:<7}", "$success" if where == "here" else ASIDE),
                (entry.name.rpartition("/")[2], "bold" if is_chosen else ""),
            )
        self.query_one(ModelList).show(lines, self._model)


def agent_text(name: str, agent: type[AgentBase]) -> Content:
    """The title and the description of a game, and how long it takes to learn or what it needs."""
    badge = ""
    if needed := missing(agent):
        badge = f"needs extra {agent.extra}"
    elif name in LEARNT_MIN:
        badge = f"learns in {LEARNT_MIN[name]:g} min"
    return Content.assemble(
        (one_line(agent.title or agent.__name__), "bold"),
        (f"  {badge}\n", "$warning" if needed else "$success"),
        one_line(needed or agent.description or name),
    )


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


class BranchDialog(Dialog[RunConfig | None]):
    """A new run from a checkpoint of a past one; dismissed with its settings, or with None."""

    BINDING_GROUP_TITLE = "Branch"
    BINDINGS = [
        Binding(
            "enter", "branch", "Begin", tooltip="Branch off: a new run begins there.", priority=True
        ),
        Binding("tab", "app.focus_next", "Next field", tooltip="To the next field."),
        Binding("escape", "dismiss", "Close", tooltip="Back to the runs."),
    ]

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self.heading = f"branch of {one_line(run_dir.name)}"
        self._run_dir = run_dir
        self._kept = list(map(str, kept_updates(run_dir)))

    def body(self) -> ComposeResult:
        yield Words(f"begin after update ({', '.join(self._kept)})")
        yield SentenceInput(self._kept[-1])
        yield Words("settings to change, for example ppo.lr=1e-3 seed=1")
        yield SentenceInput()
        yield Words("a new prompt")
        yield SentenceInput()

    def action_branch(self) -> None:
        update, settings, prompt = (field.value.strip() for field in self.query(SentenceInput))
        if update not in self._kept:
            self.notify(
                f"There is no checkpoint after update {update!r}; choose {' or '.join(self._kept)}.",
                severity="error",
            )
            return
        try:
            given = assigned(settings.split()) | {"parent": f"{self._run_dir}@{update}"}
            if prompt:
                given["system_prompt"] = prompt
            self.dismiss(run_config(None, given))
        except LlamaGymError as error:  # what is typed stays
            self.notify(str(error), severity="error")
