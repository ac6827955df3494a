"""The screen of all past runs: a table to sort, from which runs are replayed, resumed or compared."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import evaluated_return, with_unit
from llamagym_tui.run_store import ABOUT_FILE, is_held
from llamagym_tui.screens.past_runs.compare import CompareScreen
from llamagym_tui.screens.past_runs.run_list import RunList
from llamagym_tui.screens.past_runs.run_table import RunRow, played_text
from llamagym_tui.screens.widgets.dialogs import CautiousDialog
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.sentence_input import SentenceInput
from llamagym_tui.screens.widgets.sizes import TooSmall
from llamagym_tui.user_files import discard, replace_file, runs_dir

LONGEST = 500
"""Characters of a name with its note and tags."""


class RunsScreen(Screen[None]):
    CSS_PATH = "runs.tcss"
    BINDING_GROUP_TITLE = "Runs"
    BINDINGS = [
        Binding("space", "mark", "Mark", tooltip="Mark a run, to compare it.", id="runs.mark"),
        Binding(
            "a",
            "mark_all",
            "All",
            tooltip="Mark all that are listed, or none.",
            id="runs.mark_all",
            show=False,
        ),
        Binding(
            "c",
            "compare",
            "Compare",
            tooltip="The marked runs, or the marked and the chosen: curves in one chart, settings that differ.",
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
            "s",
            "sort",
            "Sort",
            tooltip="Sort by the next column; a click on a title, too.",
            id="runs.sort",
        ),
        Binding("S", "reverse", "Reverse", tooltip="Reverse the order.", id="runs.reverse"),
        Binding(
            "n",
            "name",
            "Name, tags",
            tooltip="Give the run a name and, after a colon, a note; words that begin with # are tags.",
            id="runs.name",
        ),
        Binding(
            "slash",
            "filter",
            "Filter",
            tooltip="Only runs in whose names, notes or tags something is.",
            id="runs.filter",
        ),
        Binding(
            "question_mark", "app.help", "Help", tooltip="What the keys do.", id="help", show=False
        ),
        Binding("escape,q", "leave", "Back", tooltip="Back.", id="runs.leave"),
    ]

    def __init__(self, *, run_is_open: bool = False) -> None:
        """While a run is open, none can be replayed or resumed."""
        super().__init__()
        self._run_is_open = run_is_open

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield Static(id="runs-header", markup=False)
        runs = RunList(id="runs", run_is_open=self._run_is_open)
        yield runs.heading
        yield runs
        yield Static(id="runs-chosen", markup=False)
        yield SentenceInput(
            id="runs-name", placeholder="name: note #tag", max_length=LONGEST, select_on_focus=False
        )
        yield SentenceInput(
            id="runs-filter", placeholder="a part of a name, note or #tag; tab: the list; esc: all"
        )
        yield KeyBar()

    def on_screen_resume(self) -> None:
        self.query_one(RunList).read()

    @on(RunList.Changed)
    def describe(self) -> None:
        """How many runs there are, and all that is known of the chosen one."""
        runs = self.query_one(RunList)
        count = f" {len(runs.rows):,} in {one_line(str(runs_dir()))}" if runs.loaded else ""
        only = " to look at and compare while a run is open ·" if self._run_is_open else ""
        header = Content.assemble(
            (" RUNS ", "bold $background on $accent"), (only + count, "$aside")
        )
        self.query_one("#runs-header", Static).update(header)
        self.query_one("#runs-chosen", Static).update(_chosen_text(runs))
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Comparing needs two runs or more that can be read."""
        if action == "compare":
            return True if len(self._to_compare()) > 1 else None
        if action in ("mark", "name"):
            return True if self.query_one(RunList).chosen else None
        if action == "delete":
            row = self.query_one(RunList).chosen
            return (
                True
                if row is not None and not row.info.is_running and not self._run_is_open
                else None
            )
        return True

    def action_mark(self) -> None:
        self.query_one(RunList).mark()

    def action_mark_all(self) -> None:
        self.query_one(RunList).mark_all()

    def action_sort(self) -> None:
        self.query_one(RunList).action_sort()

    def action_reverse(self) -> None:
        runs = self.query_one(RunList)
        runs.sort(runs.sorted_by)

    def action_name(self) -> None:
        if (row := self.query_one(RunList).chosen) is not None:
            self._open("#runs-name", row.info.about)

    def action_filter(self) -> None:
        self._open("#runs-filter", "")

    def _open(self, name: str, value: str) -> None:
        field = self.query_one(name, SentenceInput)
        field.value = value
        field.display = True
        field.cursor_position = len(value)
        field.focus()

    @on(SentenceInput.Changed, "#runs-filter")
    def filter(self, event: SentenceInput.Changed) -> None:
        self.query_one(RunList).filter(event.value.strip())

    @on(SentenceInput.Submitted, "#runs-name")
    def _named(self, event: SentenceInput.Submitted) -> None:
        if (row := self.query_one(RunList).chosen) is not None:
            self._change(
                partial(
                    replace_file,
                    row.info.run_dir / ABOUT_FILE,
                    event.value.encode("utf-8", "replace"),
                )
            )
        self.action_leave()

    def action_delete(self) -> None:
        if (row := self.query_one(RunList).chosen) is not None:
            question = f"{row.info.run_dir} will be deleted, with its model and all that was recorded. It is not kept."
            dialog = CautiousDialog("delete this run?", question, yes="delete", no="keep")
            dialog.ask(self.app, lambda: self._change(partial(discard_run, row.info.run_dir)))

    def _change(self, change: Callable[[], None]) -> None:
        try:
            change()
        except OSError as error:
            self.notify(f"That cannot be done: {error}.", severity="error")
        self.query_one(RunList).read()

    def action_leave(self) -> None:
        """Leave the name as it was, and the filter; or the screen."""
        if not any(field.display for field in self.query(SentenceInput)):
            self.dismiss()
        for field in self.query(SentenceInput):
            field.value = ""
            field.display = False
        self.query_one(RunList).focus()

    def action_compare(self) -> None:
        compared = self._to_compare()
        games = list(dict.fromkeys(one_line(row.game) for row in compared))
        if len(games) > 1:  # their returns have no axis in common
            self.notify(
                f"{games[0]} and {games[1]} are different games; mark runs of one.",
                severity="warning",
            )
        else:
            self.app.push_screen(CompareScreen(compared, self.query_one(RunList).rows))

    def _to_compare(self) -> list[RunRow]:
        """The marked runs, or the marked one and the chosen one."""
        runs = self.query_one(RunList)
        keys = [*runs.marked]
        if len(keys) == 1 and runs.chosen is not None and runs.chosen.key not in keys:
            keys.append(runs.chosen.key)
        by_key = {row.key: row for row in runs.rows if row.summary is not None}
        return [by_key[key] for key in keys if key in by_key]


def discard_run(run_dir: Path) -> None:
    """Raises OSError: a process has the run, or it cannot be deleted."""
    if is_held(run_dir):
        raise OSError("another process has the run")
    discard(run_dir)


def _chosen_text(runs: RunList) -> str:
    """What the table has no room for."""
    if not runs.rows:
        return (
            f"There are no runs in {one_line(str(runs_dir()))} yet: enter on an agent at home begins one, "
            "llamagym-tui blackjack too."
            if runs.loaded
            else "looking for runs …"
        )
    row = runs.chosen
    if row is None:
        return ""
    if row.fault:
        return one_line(row.fault)
    about = f"{row.info.about} · " if row.info.about else ""
    branch = f" · {row.info.config.origin}" if row.info.config.origin else ""
    parts = [
        f"{about}{row.info.config.agent} · {row.info.config.model} · seed {row.info.config.seed}{branch}"
    ]
    if (summary := row.summary) is not None:
        parts.append(played_text(summary))
        if (evaluation := summary.evaluation) is not None:
            how = "greedy" if evaluation.greedy else "sampled"
            parts.append(
                f"evaluated {with_unit(evaluated_return(evaluation).text, summary.return_unit)} ({how})"
            )
    parts.append(row.info.standing)
    return f"{one_line(' · '.join(parts))}\n{one_line(str(row.info.run_dir))}"
