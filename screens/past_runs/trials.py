"""The trials of a sweep, a line each: score, what was searched, the curve. The best is marked; one opens as a run.

`sweep` names the folders of its runs after the sweep, the trial and the seed, and ends each with an evaluation, whose
mean over the seeds is the trial's score.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import signed
from llamagym_tui.screens.past_runs.compare import curve_of
from llamagym_tui.screens.past_runs.run_list import RunList
from llamagym_tui.screens.past_runs.run_table import OF_A_SEED, RunRow
from llamagym_tui.screens.widgets.key_bar import KeyBar, own_keys
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import spark
from llamagym_tui.screens.widgets.sizes import TooSmall
from llamagym_tui.screens.widgets.table_list import Column, TableList
from llamagym_tui.state.run_summary import differences

FOLDER = re.compile(r"(?P<sweep>.+)-(?P<trial>\d{3,})-seed\d+")
BEST = "★"


@dataclass(frozen=True, kw_only=True)
class Trial:
    number: int
    runs: list[RunRow]
    """By their seeds; each has been read."""
    settings: str
    """Those in which the sweep's trials differ."""

    @property
    def score(self) -> float | None:
        """None: it has ended early, or is still under way."""
        found = [row.summary.evaluation for row in self.runs if row.summary]
        return fmean(each.mean_return for each in found if each) if all(found) else None


def sweep_of(row: RunRow) -> str:
    """The sweep that a run is of; empty: of none."""
    found = FOLDER.fullmatch(row.info.run_dir.name)
    return found["sweep"] if found else ""


def trials_of(sweep: str, rows: Iterable[RunRow]) -> list[Trial]:
    """The trials among some runs, by their numbers; runs that were not read, or have no curve yet, are left out."""
    runs = sorted((row for row in rows if sweep_of(row) == sweep and row.curve), key=lambda row: row.key)
    if not runs:
        return []
    first = runs[0].info.config
    varied = [differences(first, row.info.config, ({}, {})) for row in runs]
    names = sorted({name for found in varied for name in found} - {*OF_A_SEED, "measured_threads"})
    known = {name: pair[0] for found in varied for name, pair in found.items()}
    trials: dict[int, Trial] = {}
    for row, found in zip(runs, varied, strict=True):
        number = int(FOLDER.fullmatch(row.info.run_dir.name)["trial"])  # type: ignore[index]
        settings = ", ".join(f"{name} {found[name][1] if name in found else known[name]}" for name in names)
        trials.setdefault(number, Trial(number=number, runs=[], settings=settings)).runs.append(row)
    return list(trials.values())


def _order(trial: Trial) -> float:
    return -inf if trial.score is None else trial.score


class TrialList(TableList[Trial]):
    COLUMNS: ClassVar = (
        Column("score", 9, lambda trial: "—" if trial.score is None else signed(trial.score), _order, True, right=True),
        Column("trial", 5, lambda trial: f"{trial.number}", lambda trial: trial.number, right=True),
        Column("runs", 4, lambda trial: f"{len(trial.runs)}", None, right=True, style=ASIDE),
        Column("curve", 24, lambda trial: "", style="$primary", needs=64),
        Column("settings", 0, lambda trial: trial.settings),
    )

    BINDING_GROUP_TITLE = "Trials"
    BINDINGS: ClassVar[list[BindingType]] = own_keys(__file__)

    def key(self, row: Trial) -> int:
        return row.number

    def action_sort(self) -> None:
        self.sort_by_next()

    def mark_of(self, row: Trial) -> str:
        return BEST if row.score is not None and row.score == max(map(_order, self.rows)) else ""

    def cell(self, row: Trial, column: Column[Trial], width: int) -> Content:
        if column.title == "curve" and (curve := curve_of(row.runs)):
            return Content.styled(spark([point.mean_return for point in curve], width), column.style)
        return super().cell(row, column, width)


class TrialsScreen(Screen[None]):
    CSS_PATH = "runs.tcss"

    def __init__(self, sweep: str, rows: Iterable[RunRow], *, run_is_open: bool) -> None:
        super().__init__()
        self._sweep, self._trials, self._run_is_open = sweep, trials_of(sweep, rows), run_is_open

    def compose(self) -> ComposeResult:
        yield TooSmall()
        head = f" {one_line(self._sweep)}: {len(self._trials):,}, {BEST} the best; a score is the mean of evaluations"
        header = Content.assemble((" TRIALS ", "bold $background on $accent"), (head, "$foreground 60%"))
        yield Static(header, id="runs-header", markup=False)
        trials = TrialList(id="runs")
        yield trials.heading
        yield trials
        yield KeyBar()

    def on_mount(self) -> None:
        trials = self.query_one(TrialList)
        trials.show(self._trials)
        trials.focus()

    @on(OptionList.OptionSelected)
    def open(self) -> None:
        if (trial := self.query_one(TrialList).chosen) is not None and not self._run_is_open:
            self.post_message(RunList.Requested(trial.runs[0], "replay"))
