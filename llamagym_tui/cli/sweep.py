"""`sweep`: trials of settings by Optuna, each a few runs of `train` in processes of their own.

A run whose curve is below the median of earlier ones ends early; the same command goes on with what is missing.
"""

import json
import math
import shlex
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout
from msgspec import Struct, field

from llamagym_tui.config import flat
from llamagym_tui.errors import RunStoreError, UsageError, require_library
from llamagym_tui.protocol import events
from llamagym_tui.protocol.event_log import followed
from llamagym_tui.protocol.literal import echo
from llamagym_tui.returns import RECENT, counted, signed
from llamagym_tui.run_store import EVENTS_FILE
from llamagym_tui.setup.assignments import settings
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.user_files import data_dir, file_text, make_folder, runs_dir

LOOKS = 10
"""How many times a run's curve is looked at on the way to its limit."""
WARMUP = 2
"""How many of these looks, the first ones, end no run."""
WITHOUT_PRUNING = 4
"""Trials that are never ended early: the curves that later ones are compared with."""
COUNTED = ("COMPLETE", "PRUNED")
"""The states, by Optuna's names, of trials that count as made."""


class Range(Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers from `low` to `high`, both included."""

    low: int | float
    high: int | float
    log: bool = False


class Spec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep, as its TOML file has it; settings have the names that ``--set`` takes."""

    agent: str
    search: dict[str, Range | list[bool | int | float | str]]
    episodes: int | None = None
    minutes: float | None = None
    """The limit of each run: episodes or minutes, one of the two."""
    trials: int = 20
    seeds: list[int] = field(default_factory=lambda: [0, 1])
    set: dict[str, bool | int | float | str] = field(default_factory=dict)
    """Settings that all trials share."""
    options: list[str] = field(default_factory=list)
    """More words for `train`, as ``["--env", "size=8"]``."""

    def __post_init__(self) -> None:
        has_one_limit = (self.minutes is None) != (self.episodes is None)
        if not has_one_limit or self.set.get("final_episodes") == 0:
            raise ValueError(
                "it needs either minutes or episodes of a run, and an evaluation at its end"
            )

    def words(self, values: dict[str, Any], seed: int) -> list[str]:
        """The command line of a run."""
        words = ["train", self.agent]
        if self.episodes:
            words += ["--episodes", str(self.episodes)]
        else:
            words += ["--minutes", str(self.minutes)]
        words += self.options
        for each in self.assignments(values):
            words += ["--set", each]
        return [*words, "--seed", str(seed)]

    def assignments(self, values: dict[str, Any]) -> list[str]:
        """NAME=VALUE of all settings of a run, as ``--set`` takes them."""
        given = {**self.set, **values}
        return [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in given.items()
        ]


def read_spec(path: Path) -> Spec:
    """Read a sweep from its file.

    Raises:
        UsageError: the file cannot be read, or names a setting that there is not, or a value that its setting refuses.
    """
    try:
        spec = msgspec.toml.decode(file_text(path), type=Spec)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} is no sweep ({why}); docs/GUIDE.md has an example.") from error
    for name, space in spec.search.items():
        if isinstance(space, Range) and (space.low > space.high or (space.log and space.low <= 0)):
            raise UsageError(
                f"{path} has a low of {name} that is above its high, or not above 0 with log; correct it."
            )
        tried = space if isinstance(space, list) else [space.low, space.high]
        for value in tried:
            settings(spec.assignments({name: value}))
    return spec


def _has(space: Range | list[Any], value: Any) -> bool:
    """Whether a value may be tried."""
    if isinstance(space, list):
        return value in space
    return isinstance(value, int | float) and space.low <= value <= space.high


class Sweep:
    def __init__(self, path: Path) -> None:
        """Read a sweep from its file, and what is known of it from its journal.

        Raises:
            UsageError: Optuna is not installed, or the file is no sweep, or was changed since its first trial.
        """
        require_library("optuna", "sweep")
        self.spec = read_spec(path)
        self.name = path.stem
        self._optuna: Any = import_module("optuna")
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        self.file = data_dir() / "sweeps" / f"{self.name}.journal"
        make_folder(self.file.parent)
        backend = import_module("optuna.storages.journal").JournalFileBackend(str(self.file))
        self.study = self._optuna.create_study(
            storage=self._optuna.storages.JournalStorage(backend),
            study_name=self.name,
            direction="maximize",
            load_if_exists=True,
            # A constant liar, as several trials are under way at once.
            sampler=self._optuna.samplers.TPESampler(constant_liar=True),
            pruner=self._optuna.pruners.MedianPruner(
                n_startup_trials=WITHOUT_PRUNING, n_warmup_steps=WARMUP
            ),
        )
        self._over = threading.Event()
        # There may be more trials than at first.
        own = msgspec.to_builtins(self.spec) | {"trials": None}
        if self.study.user_attrs.get("spec", own) != own:
            raise UsageError(
                f"{path} was changed since its first trial: give it another name, or remove {self.file}."
            )
        if not self.study.trials:
            given = self.spec.assignments({})
            usual = flat(
                run_config(agent=self.spec.agent, run_dir=None, resume=False, assignments=given)
            )
            self.study.set_user_attr("spec", own)
            if all(_has(space, usual[name]) for name, space in self.spec.search.items()):
                self.study.enqueue_trial(
                    {name: usual[name] for name in self.spec.search}, user_attrs={"default": True}
                )

    def run(self, jobs: int) -> None:
        """Make the trials that are missing, `jobs` at once; runs that ctrl+c ends are made again the next time."""
        try:
            with FileLock(self.file.with_suffix(".lock"), timeout=0.2):
                for trial in self.study.trials:  # those that an earlier process did not end
                    if trial.state.name == "RUNNING":
                        self.study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
                        self.study.enqueue_trial(trial.params, user_attrs=trial.user_attrs)
                missing = self.spec.trials - len(self._done())
                if missing:
                    runs = counted(len(self.spec.seeds), "run")
                    echo(f"{counted(missing, 'trial')} to make, each of {runs}.", to=sys.stderr)
                    self.study.optimize(
                        self._score,
                        n_trials=missing,
                        n_jobs=jobs,
                        catch=(UsageError,),
                        callbacks=[self._report],
                    )
        except KeyboardInterrupt:
            echo("Interrupted; the same command goes on with what is missing.", to=sys.stderr)
            raise
        except Timeout as error:
            raise RunStoreError(
                f"Another process runs the sweep {self.name}; --show shows what it has."
            ) from error
        finally:
            self._over.set()

    def _report(self, _: object, trial: Any) -> None:
        """Print how a trial ended."""
        if trial.state.name in COUNTED:
            score, *values = self._cells(trial)
            words = (f"{name} {value}" for name, value in zip(trial.params, values, strict=True))
            echo(f"trial {trial.number}: {score} with {', '.join(words)}", to=sys.stderr)

    def _cells(self, trial: Any) -> list[str]:
        """The score of a trial, and the values of its settings."""
        cells = ["ended early" if trial.state.name == "PRUNED" else signed(trial.value)]
        for value in trial.params.values():
            cells.append(f"{value:.4g}" if isinstance(value, float) else str(value))
        return cells

    def _done(self) -> list[Any]:
        return [trial for trial in self.study.trials if trial.state.name in COUNTED]

    def _score(self, trial: Any) -> float:
        """Run a trial's seeds in a row; returns the mean of their scores."""
        values = {name: self._value(trial, name, space) for name, space in self.spec.search.items()}
        scores = []
        for at, seed in enumerate(self.spec.seeds):
            run_dir = runs_dir() / f"{self.name}-{trial.number:03}-seed{seed}"
            command = [
                sys.executable,
                "-m",
                "llamagym_tui",
                *self.spec.words(values, seed),
                "--run-dir",
                str(run_dir),
            ]
            # By ctrl+c, which comes to it too, it ends with a checkpoint.
            with tempfile.TemporaryFile() as errors:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
                )
                try:
                    scores.append(self._watched(trial, at * LOOKS, process, run_dir))
                except (KeyboardInterrupt, RunStoreError):
                    self.study.enqueue_trial(trial.params, user_attrs=trial.user_attrs)
                    raise
                if process.returncode:
                    errors.seek(0)
                    why = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
                    echo(f"trial {trial.number} failed: {why}", to=sys.stderr)
                    raise UsageError(why)
        trial.set_user_attr("scores", scores)
        return sum(scores) / len(scores)

    def _value(self, trial: Any, name: str, space: Any) -> Any:
        if isinstance(space, list):
            return trial.suggest_categorical(name, space)
        is_whole = isinstance(space.low, int) and isinstance(space.high, int)
        suggest = trial.suggest_int if is_whole else trial.suggest_float
        return suggest(name, space.low, space.high, log=space.log)

    def _watched(
        self, trial: Any, first: int, process: subprocess.Popen[bytes], run_dir: Path
    ) -> float:
        """The score of a run, which is ended early if its curve is too low; `first` is the number of its first look."""

        def wait(seconds: float) -> bool:
            if is_pruned or self._over.is_set():
                process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                return True
            return False

        recent: deque[float] = deque(maxlen=RECENT)
        looks = 0
        is_pruned = False
        score = math.nan
        began_s = 0.0
        for event in followed(run_dir / EVENTS_FILE, wait):
            if isinstance(event, events.RunStarted):
                began_s = event.at_s
            elif isinstance(event, events.EvaluationFinished):
                score = event.mean_return
            elif isinstance(event, events.EpisodesCounted) and not is_pruned:
                recent.extend(event.returns)
                share = self._share_of_limit(event, event.at_s - began_s)
                if recent and looks < int(LOOKS * share) < LOOKS:
                    looks = int(LOOKS * share)
                    trial.report(sum(recent) / len(recent), first + looks)
                    is_pruned = trial.should_prune()
        if is_pruned:
            raise self._optuna.TrialPruned
        if math.isnan(score) and not process.returncode:
            raise RunStoreError(
                f"The run in {run_dir} ended without an evaluation; the same command goes on."
            )
        return score

    def _share_of_limit(self, event: events.EpisodesCounted, played_s: float) -> float:
        """How far a run is on the way to its limit, from 0 to 1."""
        if self.spec.episodes:
            return event.episodes / self.spec.episodes
        return played_s / 60 / (self.spec.minutes or 1)

    def table(self) -> Iterator[str]:
        """A line for each trial, the best one marked, and the command that repeats it."""
        done = self._done()
        complete = [each for each in done if each.state.name == "COMPLETE"]
        best = max(complete, key=lambda each: each.value, default=None)
        rows = [("", "trial", "score", "", *self.spec.search, "of each seed")]
        for trial in done:
            score, *values = self._cells(trial)
            of_each = " ".join(map(signed, trial.user_attrs.get("scores", ())))
            note = "the defaults" if trial.user_attrs.get("default") else ""
            mark = "*" if best and trial.number == best.number else ""
            rows.append((mark, str(trial.number), score, note, *values, of_each))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(map(str.ljust, row, widths)).rstrip()
        if best:
            runs = f"{self.name}-{best.number:03}-seed…"
            yield f"The best trial's runs are {runs} (`llamagym-tui runs` lists them). To repeat one:"
            yield shlex.join(["llamagym-tui", *self.spec.words(best.params, self.spec.seeds[0])])
