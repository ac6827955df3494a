"""A tracker gets the figures of every update and evaluation, and cannot end a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from llamagym_tui.protocol.events import EvaluationFinished, UpdateFinished
from llamagym_tui.trainer import event_sinks
from llamagym_tui.trainer.event_sinks import Tracker
from tests import fakes


class Library:
    """Stands for torch.utils.tensorboard and for wandb, and keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def called(*words: Any, **options: Any) -> Library:
            self.calls.append((name, *words, options))
            return self

        return called


def a_run() -> list[Any]:
    stats = next(event.stats for event in fakes.demo_run() if isinstance(event, UpdateFinished))
    evaluated = EvaluationFinished(
        episodes=200,
        greedy=True,
        mean_return=0.25,
        return_stderr=0.07,
        parse_failure_rate=0.0,
        elapsed_s=1.0,
    )
    return [
        fakes.run_started(),
        replace(fakes.counted([1.0, -1.0], 2), env_steps=6),
        UpdateFinished(update=3, episodes=2, stats=replace(stats, approx_kl=0.25, lr=float("nan"))),
        evaluated,
    ]


def tracked(name: Any, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    library = Library()
    monkeypatch.setattr(event_sinks, "import_module", lambda module: library)
    sink = Tracker(fakes.config(run_dir, track=name))
    for event in a_run():
        sink.take(event)
    sink.close()
    return library.calls


def test_tensorboard_has_each_figure_at_its_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tracked("tensorboard", tmp_path, monkeypatch)
    assert calls[0] == ("SummaryWriter", str(tmp_path / "tensorboard"), {"purge_step": 3})
    assert ("add_scalar", "update/approx_kl", 0.25, 3, {}) in calls
    assert ("add_scalar", "evaluation/greedy_mean_return", 0.25, 3, {}) in calls
    assert ("add_scalar", "turns", 6, 3, {}) in calls
    assert not [call for call in calls if call[1:2] == ("update/lr",)], "it is not finite"
    assert calls[-1] == ("close", {})


def test_wandb_has_a_row_for_each_update_and_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, first, second, ended = tracked("wandb", tmp_path, monkeypatch)
    assert (begun[0], begun[1]["dir"], begun[1]["config"]["ppo.gamma"]) == (
        "init",
        str(tmp_path),
        1.0,
    )
    assert (first[1]["update"], first[1]["turns"], first[1]["update/approx_kl"]) == (3, 6, 0.25)
    assert second[1]["evaluation/greedy_mean_return"] == 0.25
    assert ended == ("finish", {})


def test_a_library_that_fails_is_a_fault_that_the_session_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*words: Any, **options: Any) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(event_sinks, "import_module", lambda name: SimpleNamespace(init=broken))
    sink = Tracker(fakes.config(tmp_path, track="wandb"))
    with pytest.raises(OSError, match="wandb: no room"):
        sink.take(a_run()[2])
