"""A sweep whose runs are scripted: what it tries, scores, ends early, takes up again and shows."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from filelock import FileLock
from msgspec.structs import replace
from typer.testing import CliRunner

from llamagym_tui import errors
from llamagym_tui.cli import sweep
from llamagym_tui.cli.main import app
from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.events import EvaluationFinished
from llamagym_tui.run_store import RunStore
from tests import fakes

SPEC = """
agent = "blackjack"
episodes = 100
trials = {trials}
seeds = [1, 2]
[set]
threads = 1
[search]
"ppo.epochs" = {{ low = 1, high = 3 }}
"ppo.batch_size" = [256, 1024]
"""
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "blackjack_sweep.toml"


class Train:
    """A `train` that plays as its number of epochs says: every return is a tenth of it, less for seed 1."""

    started: ClassVar[list[dict[str, str]]] = []
    fails_with, goes_on = b"", False

    def __init__(self, words: list[str], *, stderr: Any, **more: Any) -> None:
        options = dict(pairwise(words))
        options |= dict(word.split("=", 1) for before, word in pairwise(words) if before == "--set")
        self.started.append(options)
        self.returncode = 1 if self.fails_with else 0
        self.is_over, self.waits = not self.goes_on, 0
        stderr.write(self.fails_with)
        store = RunStore.create(fakes.config(Path(options["--run-dir"])))
        played = int(options["ppo.epochs"]) / 10 - (0.05 if options["--seed"] == "1" else 0.0)
        store.append(replace(fakes.run_started(), at_s=3.0))  # of loading
        for look in range(1, 11):
            store.append(replace(fakes.counted([played] * 10, 10 * look), at_s=3.0 + 12 * look))
        figures = {
            "episodes": 200,
            "greedy": False,
            "return_stderr": 0.0,
            "parse_failure_rate": 0.0,
            "elapsed_s": 1.0,
        }
        if self.is_over and not self.fails_with:
            store.append(EvaluationFinished(mean_return=played, **figures))
        store.close()

    def wait(self, seconds: float) -> int:
        self.waits += 1
        assert self.waits < 5, "nobody ends it"
        if not self.is_over:
            raise subprocess.TimeoutExpired("train", seconds)
        return 0

    def terminate(self) -> None:
        self.is_over = True


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(sweep.subprocess, "Popen", Train)
    monkeypatch.setattr(Train, "started", [])
    path = tmp_path / "two.toml"
    path.write_text(SPEC.format(trials=3))
    return path


@pytest.fixture
def optuna() -> Any:
    return pytest.importorskip("optuna", reason="the extra sweep is not installed")


def swept(*words: str) -> list[str]:
    result = CliRunner().invoke(app, ["sweep", *words])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_a_score_is_the_mean_over_seeds_and_the_defaults_are_the_first_trial(
    spec: Path, optuna: Any
) -> None:
    lines = swept(str(spec))
    assert [each["--seed"] for each in Train.started] == ["1", "2"] * 3
    assert lines[0].split()[:2] == ["trial", "score"]
    assert re.split(r"\s{2,}", lines[1].lstrip("* ")) == [
        "0",
        "+0.175",
        "the defaults",
        "2",
        "1024",
        "+0.150 +0.200",
    ]
    assert {each["threads"] for each in Train.started} == {"1"}
    assert [each["--run-dir"].rpartition("/")[2] for each in Train.started[:2]] == [
        "two-000-seed1",
        "two-000-seed2",
    ]
    best = max(Train.started, key=lambda each: int(each["ppo.epochs"]))
    assert f"--set ppo.epochs={best['ppo.epochs']} " in lines[-1]
    (marked,) = (line for line in lines if line.startswith("*"))
    assert f"+{int(best['ppo.epochs']) / 10 - 0.025:.3f}" in marked


def test_each_trial_is_printed_as_it_ends(spec: Path, optuna: Any) -> None:
    printed = CliRunner().invoke(app, ["sweep", str(spec)]).stderr.splitlines()
    assert printed[0] == "3 trials to make, each of 2 runs."
    assert printed[1] == "trial 0: +0.175 with ppo.epochs 2, ppo.batch_size 1024"
    assert [line.partition(":")[0] for line in printed[1:]] == ["trial 0", "trial 1", "trial 2"]


@pytest.mark.parametrize(
    "search", ['"ppo.batch_size" = [128, 256]', '"ppo.batch_size" = { low = 128, high = 256 }']
)
def test_defaults_outside_the_space_are_not_tried(spec: Path, optuna: Any, search: str) -> None:
    spec.write_text(SPEC.format(trials=2).replace('"ppo.batch_size" = [256, 1024]', search))
    assert not any("the defaults" in line for line in swept(str(spec)))
    assert all(128 <= int(each["ppo.batch_size"]) <= 256 for each in Train.started)


def test_a_file_that_was_refused_can_be_corrected(spec: Path, optuna: Any) -> None:
    right = spec.read_text()
    spec.write_text(right.replace("blackjack", "blackjackk"))
    assert CliRunner().invoke(app, ["sweep", str(spec)]).exit_code == 2
    spec.write_text(right)
    assert len(swept(str(spec))) == 6


def test_the_same_command_goes_on_and_show_runs_nothing(spec: Path, optuna: Any) -> None:
    first = swept(str(spec))
    assert swept(str(spec), "--show") == swept(str(spec)) == first
    assert len(Train.started) == 6
    spec.write_text(SPEC.format(trials=4))
    swept(str(spec), "--jobs", "2")
    assert len(Train.started) == 8


def test_a_trial_that_was_under_way_when_its_process_died_is_made_again(
    spec: Path, optuna: Any
) -> None:
    found = sweep.Sweep(spec)
    pruner, sampler = found.study.pruner, found.study.sampler
    assert (pruner._n_startup_trials, pruner._n_warmup_steps) == (4, 2)
    assert (sampler._constant_liar, found.study.direction.name) == (True, "MAXIMIZE")
    lost = found.study.ask()
    lost.suggest_int("ppo.epochs", 1, 3)
    lost.suggest_categorical("ppo.batch_size", [256, 1024])
    swept(str(spec))
    assert len(Train.started) == 6
    assert (Train.started[0]["ppo.epochs"], Train.started[0]["ppo.batch_size"]) == ("2", "1024")
    assert Train.started[0]["--run-dir"].endswith("two-001-seed1")


@pytest.mark.parametrize("limit", ["episodes = 100", "minutes = 2"])
def test_a_run_below_the_median_of_earlier_ones_is_ended_early(
    spec: Path, optuna: Any, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(sweep, "WITHOUT_PRUNING", 1)
    text = SPEC.replace("episodes = 100", limit)
    spec.write_text(text.format(trials=1))
    swept(str(spec))  # the defaults: 0.15 at every look
    sweep.Sweep(spec).study.enqueue_trial({"ppo.epochs": 1, "ppo.batch_size": 256})  # 0.05
    looks = [sweep.Sweep(spec).study.trials[0].intermediate_values[look] for look in (1, 9, 11, 19)]
    assert looks == pytest.approx([0.15, 0.15, 0.2, 0.2])  # ten of each run, the last at its end
    spec.write_text(text.format(trials=2))
    monkeypatch.setattr(Train, "goes_on", True)  # until it is ended
    lines = swept(str(spec))
    assert "ended early" in lines[2]
    assert lines[1].startswith("*")
    assert [each["--seed"] for each in Train.started] == [
        "1",
        "2",
        "1",
    ]  # its second seed was not begun


def test_settings_that_do_not_run_are_reported_with_their_sentence_and_the_sweep_goes_on(
    spec: Path, optuna: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Train, "fails_with", b"loading\nllamagym-tui: No memory for that.\n")
    result = CliRunner().invoke(app, ["sweep", str(spec)])
    sentence = "failed: llamagym-tui: No memory for that."
    assert result.exit_code == 0
    assert result.stderr.splitlines()[1:] == [f"trial {number} {sentence}" for number in range(3)]
    assert len(Train.started) == 3


def test_a_run_that_was_interrupted_is_made_again_by_the_same_command(
    spec: Path, optuna: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Train, seconds: float) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(Train, "wait", interrupt)
        result = CliRunner().invoke(app, ["sweep", str(spec)])
        assert "Interrupted; the same command goes on with what is missing.\n" in result.stderr
    Train.started.clear()
    with monkeypatch.context() as interrupted:
        interrupted.setattr(Train, "goes_on", True)
        interrupted.setattr(
            Train, "wait", lambda self, seconds: 0
        )  # it has ended, without its evaluation
        result = CliRunner().invoke(app, ["sweep", str(spec)])
    assert result.stderr.endswith("ended without an evaluation; the same command goes on.\n")
    assert "the defaults" in swept(str(spec))[1]
    assert len(Train.started) == 7


def test_a_sweep_that_was_changed_or_runs_elsewhere_is_refused(spec: Path, optuna: Any) -> None:
    swept(str(spec))
    lock = spec.parent / "data" / "sweeps" / "two.lock"
    spec.write_text(SPEC.format(trials=4))
    with FileLock(lock):
        result = CliRunner().invoke(app, ["sweep", str(spec)])
    assert "Another process runs the sweep two" in result.stderr
    spec.write_text(SPEC.format(trials=3).replace("high = 3", "high = 4"))
    result = CliRunner().invoke(app, ["sweep", str(spec)])
    assert result.exit_code == 2
    assert "was changed since its first trial" in result.stderr


@pytest.mark.parametrize(
    ("line", "other", "sentence"),
    [
        ("episodes = 100", "", "it needs either minutes or episodes of a run, and"),
        ("threads = 1", "final_episodes = 0", "and an evaluation at its end"),
        ("trials =", "tries =", "tries"),
        ("ppo.epochs", "ppo.epoch", "There is no setting 'ppo.epoch'; near it: ppo.epochs, "),
        ("[256, 1024]", "[0, 1024]", "ppo.batch_size takes"),
        ("threads = 1", 'threads = "x"', "threads takes"),
        (
            "[256, 1024]",
            "{low = 1024, high = 256}",
            "has a low of ppo.batch_size that is above its high",
        ),
        ("[256, 1024]", "{low = 0, high = 256, log = true}", "or not above 0 with log"),
    ],
)
def test_a_file_that_is_no_sweep_is_refused_in_a_sentence(
    tmp_path: Path, line: str, other: str, sentence: str
) -> None:
    path = tmp_path / "two.toml"
    path.write_text(SPEC.format(trials=3).replace(line, other))
    with pytest.raises(UsageError, match=re.escape(sentence)):
        sweep.read_spec(path)


def test_a_file_that_is_not_there_is_no_sweep() -> None:
    with pytest.raises(
        UsageError, match=r"^nope\.toml is no sweep \(No such file or directory\); docs"
    ):
        sweep.read_spec(Path("nope.toml"))


def test_the_example_is_a_sweep() -> None:
    found = sweep.read_spec(EXAMPLE)
    assert found.search["ppo.lr"] == sweep.Range(1e-4, 3e-3, log=True)
    words = "train blackjack --minutes 2.0 --set final_episodes=2000 --set ppo.lr=0.001 --seed 1"
    assert " ".join(found.words({"ppo.lr": 1e-3}, 1)) == words


def test_learners_can_be_searched(tmp_path: Path) -> None:
    path = tmp_path / "learners.toml"
    path.write_text('agent = "blackjack"\nminutes = 1\n[search]\n"ppo.learner" = ["ppo", "grpo"]\n')
    spec = sweep.read_spec(path)
    assert "ppo.learner=grpo" in spec.words({"ppo.learner": "grpo"}, 0)
    path.write_text(path.read_text().replace("grpo", "trpo"))
    with pytest.raises(UsageError, match=r"ppo.learner takes ppo or reinforce .* not 'trpo'"):
        sweep.read_spec(path)


def test_without_optuna_it_is_one_sentence_with_the_command(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["sweep", str(spec)])
    assert (
        result.stderr
        == "llamagym-tui: optuna is not installed: pip install 'llamagym-tui[sweep]'.\n"
    )
