"""`sft` without a screen, on fakes: evaluated, trained, evaluated, and a run that can be resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from llamagym_tui.cli import headless_sft
from llamagym_tui.cli.main import app
from llamagym_tui.demos import files as demo_files
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    EvaluationFinished,
    RunFinished,
    WarmStartFinished,
)
from llamagym_tui.runs import run_store
from llamagym_tui.settings import RunConfig, WarmStartStats
from llamagym_tui.trainer import session
from tests.fake_parts import FakeBuilders
from tests.trainer.test_warm_start import call

SHIPPED = Path(__file__).resolve().parents[2] / "sft_data" / "blackjack.jsonl"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setattr(session, "Builders", FakeBuilders)
    path = tmp_path / "coin.jsonl"
    demo_files.write(path, [call(seed) for seed in range(3)])
    return RunConfig(agent="coin", run_dir=str(tmp_path / "run"), sft_data=str(path))


def seen(config: RunConfig, *kinds: type) -> list[type]:
    return [
        type(event) for event in run_store.read_events(config.run_dir) if isinstance(event, kinds)
    ]


def test_it_evaluates_before_and_after_and_plays_nothing_for_the_run(
    config: RunConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    assert headless_sft.warm_start(config, episodes=10, json_output=True) == 0
    figures = json.loads(capfd.readouterr().out)
    assert figures.pop("facts")["episodes"] == 3
    evaluation = {
        "episodes": 10,
        "mean_return": -0.25,
        "return_stderr": 0.01,
        "parse_failure_rate": 0.0,
        "refusal_rate": 0.0,
    }
    assert figures == {
        "agent": "coin",
        "model": "bundled",
        "seed": 0,
        "sft_data": config.sft_data,
        "method": "sft",
        "demonstrations": 3,
        "tokens": 8,
        "steps": 4,
        "first_loss": 1.0,
        "last_loss": 0.25,
        "elapsed_s": 2.0,
        "cancelled": False,
        "before": evaluation,
        "after": evaluation,
        "run_dir": config.run_dir,
    }
    kinds = (EvaluationFinished, WarmStartFinished, RunFinished)
    assert seen(config, *kinds) == [
        EvaluationFinished,
        WarmStartFinished,
        EvaluationFinished,
        RunFinished,
    ]
    (finished,) = [
        event for event in run_store.read_events(config.run_dir) if isinstance(event, RunFinished)
    ]
    assert finished.episodes == 0
    assert (Path(config.run_dir) / "model").is_dir()


def test_without_episodes_it_only_trains_and_shows_how_to_go_on(
    config: RunConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    headless_sft.warm_start(config, episodes=0)
    out = capfd.readouterr().out
    assert out == (
        "3 demonstrations, trained in 4 steps and 2 s; loss 1.000 → 0.250. "
        f"Continue with `llamagym-tui train --resume --run-dir {config.run_dir}`.\n"
    )
    assert seen(config, EvaluationFinished) == []


def test_a_person_gets_the_confidence_intervals(
    config: RunConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    headless_sft.warm_start(config, episodes=10)
    each = "-0.250 ± 0.020 (95 %)"
    shown = (
        f"Greedy return {each} before, {each} after, parse failures 0.0% → 0.0%, over 10 episodes."
    )
    assert shown in capfd.readouterr().out


@pytest.mark.parametrize("evaluation", ["before", "after"])
def test_ctrl_c_ends_an_evaluation_at_once_and_what_is_said_of_a_checkpoint_is_true(
    config: RunConfig,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    evaluation: str,
) -> None:
    whole = FakeBuilders.evaluate
    evaluations: list[str] = []

    def evaluate(self: FakeBuilders, *parts: Any, **options: Any) -> EvaluationFinished | None:
        evaluations.append("after" if evaluations else "before")
        if evaluations[-1] == evaluation:
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it went on")
        return whole(self, *parts, **options)

    monkeypatch.setattr(FakeBuilders, "evaluate", evaluate)
    handler = signal.getsignal(signal.SIGINT)
    assert headless_sft.warm_start(config, episodes=10) == 0
    assert signal.getsignal(signal.SIGINT) is handler
    said = capfd.readouterr().out
    if evaluation == "before":
        assert said == f"Nothing was trained: the run in {config.run_dir} has no checkpoint.\n"
        assert not run_store.has_checkpoint(Path(config.run_dir))
    else:
        assert said.startswith("3 demonstrations, trained in 4 steps")
        assert f"Continue with `llamagym-tui train --resume --run-dir {config.run_dir}`." in said
        assert run_store.has_checkpoint(Path(config.run_dir))


def test_ctrl_c_amid_the_training_keeps_what_it_has_learnt(
    config: RunConfig, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FakeBuilders.warm_start

    def warm_start(self: FakeBuilders, *parts: Any, **options: Any) -> WarmStartStats:
        self.made["before_sft_step"] = lambda step: (
            signal.raise_signal(signal.SIGINT) if step == 2 else None
        )
        return whole(self, *parts, **options)

    monkeypatch.setattr(FakeBuilders, "warm_start", warm_start)
    assert headless_sft.warm_start(config, episodes=0) == 0
    captured = capfd.readouterr()
    assert "cancelled" in captured.out
    assert "Continue with" in captured.out
    assert "stopping; what was learnt is saved first" in captured.err
    assert seen(config, CheckpointSaved) == [CheckpointSaved, CheckpointSaved]


class RecordedCalls:
    """Stands for the module that trains: keeps the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config: RunConfig | None = None
        self.episodes = -1
        monkeypatch.setattr(headless_sft, "warm_start", self.warm_start)

    def warm_start(
        self, config: RunConfig, *, episodes: int, method: str, json_output: bool, debug: bool
    ) -> int:
        self.config, self.episodes, self.method = config, episodes, method
        return 0


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_the_command_takes_the_file_that_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = RecordedCalls(monkeypatch)
    words = (
        "--seed",
        "3",
        "--episodes",
        "50",
        "--set",
        "sft.epochs=5",
        "--run-dir",
        str(tmp_path / "run"),
    )
    result = run("sft", "blackjack", *words)
    assert result.exit_code == 0, result.stderr
    assert calls.config is not None
    assert Path(calls.config.sft_data or "").samefile(SHIPPED)
    assert (calls.config.seed, calls.config.sft.epochs, calls.episodes) == (3, 5, 50)
    assert not calls.config.sft_warm_start
    assert calls.method == "sft"


def test_dpo_is_refused_where_nothing_was_replaced(tmp_path: Path) -> None:
    result = run("dpo", "blackjack", "--run-dir", str(tmp_path / "run"))
    assert (result.exit_code, "has no reply that a person replaced" in result.stderr) == (2, True)
    assert not (tmp_path / "run").exists()
