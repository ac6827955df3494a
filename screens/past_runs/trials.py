"""The trials of a sweep, a line each: score, what was searched, the curve. The best is marked; one opens as a run.

A score is the mean over the seeds of the evaluations that the trial's runs end with.
"""

import re
from collections.abc import Iterable
from math import inf
from statistics import fmean
from typing import NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static

from llamagym_tui.config import flat
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import signed
from llamagym_tui.screens.past_runs.curves import Side
from llamagym_tui.screens.past_runs.run_list import RunList
from llamagym_tui.screens.past_runs.run_table import ENDINGS, OF_A_SEED, RunRow
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.sizes import TooSmall
from llamagym_tui.screens.widgets.table_list import Column, TableList

FOLDER = re.compile(r"(.+)-(\d{3,})-seed\d+")  # as `sweep` names them
BEST = "★"


class Trial(NamedTuple):
    number: int
    runs: list[RunRow]
    """By their seeds; each has a curve."""
    settings: str
    """Those in which the sweep's trials differ."""
    is_interrupted: bool = False
    """Whether its sweep was left in the middle of it, and makes it again as a later trial."""

    @property
    def score(self) -> float:
        """-inf: a run of it has ended early, or is still under way."""
        found = [row.summary.evaluation for row in self.runs if row.summary]
        return (
            fmean(each.mean_return for each in found if each)
            if all(found) and not self.is_interrupted
            else -inf
        )


def sweep_of(row: RunRow) -> tuple[str, int]:
    """The sweep that a run is of and the number of its trial; empty: of none."""
    found = FOLDER.fullmatch(row.info.run_dir.name)
    return (found[1], int(found[2])) if found else ("", 0)


def trials_of(sweep: str, rows: Iterable[RunRow]) -> list[Trial]:
    """The trials among some runs, by their numbers; runs that were not read, or have no curve yet, are left out."""
    of_sweep = sorted((row for row in rows if sweep_of(row)[0] == sweep), key=lambda row: row.key)
    runs = [row for row in of_sweep if row.curve]
    settings = [flat(row.info.config) for row in runs]
    varied = {
        name for each in settings for name, value in each.items() if value != settings[0][name]
    }
    of_a_run = {*OF_A_SEED, "run_dir", "resume", "measured", "measured_threads", "weights"}
    names = sorted(varied.difference(of_a_run, *(row.info.config.measured for row in runs)))
    trials: dict[int, Trial] = {}
    for row, values in zip(runs, settings, strict=True):
        shown = (
            f"{name} {f'{value:.4g}' if isinstance(value := values[name], float) else value}"
            for name in names
        )
        number, text = sweep_of(row)[1], ", ".join(shown)
        trials.setdefault(number, Trial(number, [], text)).runs.append(row)
    found, running = (
        [*trials.values()],
        {sweep_of(row)[1] for row in of_sweep if row.info.is_running},
    )
    return [
        each._replace(is_interrupted=each.number not in running and _was_left(each, found))
        for each in found
    ]


def _was_left(trial: Trial, trials: list[Trial]) -> bool:
    """Whether a trial that is not under way lacks runs, or their ends, and was not ended early by its sweep."""
    if trial.score > -inf:
        return len(trial.runs) < max(len(each.runs) for each in trials)
    repeated = any(
        each.number > trial.number and each.settings == trial.settings for each in trials
    )
    return repeated or any(row.ending == ENDINGS["open"] for row in trial.runs)


def _score_text(trial: Trial) -> str:
    if trial.is_interrupted:
        return ENDINGS["open"]
    return "—" if trial.score == -inf else signed(trial.score)


class TrialList(TableList[Trial]):
    COLUMNS = (
        Column("score", 11, _score_text, lambda trial: trial.score, True, right=True),
        Column("trial", 5, lambda trial: f"{trial.number}", lambda trial: trial.number, right=True),
        Column("runs", 4, lambda trial: f"{len(trial.runs)}", None, right=True, style=ASIDE),
        Column(
            "curve",
            24,
            lambda trial: [point.mean_return for point in Side(0, trial.runs).usual],
            style="$primary",
            needs=64,
        ),
        Column("settings", 0, lambda trial: trial.settings),
    )
    BINDING_GROUP_TITLE = "Trials"
    BINDINGS = [
        Binding(
            "enter",
            "select",
            "Open",
            tooltip="Watch the recorded run of the trial's first seed.",
            id="trials.open",
        ),
        Binding(
            "s",
            "sort",
            "Sort",
            tooltip="Sort by the next column; a click on a title, too.",
            id="trials.sort",
        ),
        Binding(
            "question_mark", "app.help", "Help", tooltip="What the keys do.", id="help", show=False
        ),
        Binding(
            "escape,q", "screen.dismiss", "Back", tooltip="Back to the runs.", id="trials.leave"
        ),
    ]

    def mark_of(self, row: Trial) -> str:
        return BEST if -inf < row.score == max(each.score for each in self.rows) else ""


class TrialsScreen(Screen[None]):
    CSS_PATH = "runs.tcss"

    def __init__(self, sweep: str, rows: Iterable[RunRow], *, run_is_open: bool) -> None:
        super().__init__()
        self._sweep = sweep
        self._trials = trials_of(sweep, rows)
        self._run_is_open = run_is_open

    def compose(self) -> ComposeResult:
        yield TooSmall()
        count = sum(not trial.is_interrupted for trial in self._trials)
        head = f" {one_line(self._sweep)}: {count:,}, {BEST} the best; a score is the mean of evaluations"
        header = Content.assemble((" TRIALS ", "bold $background on $accent"), (head, "$aside"))
        yield Static(header, id="runs-header", markup=False)
        trials = TrialList(id="runs")
        trials.show(self._trials)
        yield trials.heading
        yield trials
        yield Static(id="runs-chosen", markup=False)
        yield KeyBar()

    @on(TrialList.Changed)
    def describe(self) -> None:
        """All settings of the chosen trial, for which a line may have no room."""
        trial = self.query_one(TrialList).chosen
        text = (
            ""
            if trial is None
            else f"trial {trial.number}: {trial.settings or 'the settings of all others'}"
        )
        self.query_one("#runs-chosen", Static).update(Content(one_line(text)))

    @on(OptionList.OptionSelected)
    def open(self) -> None:
        if (trial := self.query_one(TrialList).chosen) is not None and not self._run_is_open:
            self.post_message(RunList.Requested(trial.runs[0], "replay"))
