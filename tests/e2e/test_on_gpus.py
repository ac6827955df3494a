"""Runs on GPUs, with the model that ships: on one card, and with a rank on each of two.

`benchmarks/RESULTS.md` says what was never run.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from llamagym_tui.protocol.events import RunFinished, UpdateFinished
from llamagym_tui.runs import run_store
from llamagym_tui.settings.figures import UpdateStats
from tests.e2e.test_headless import ENVIRONMENT, command

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
DEVICE = "cuda"


def updates_of(run_dir: Path, model: str, *options: str) -> list[UpdateStats]:
    """Figures of the updates of a run on GPUs, which must end in order."""
    words = command("train", "blackjack", "--model", model, "--run-dir", run_dir, "--episodes", 512)
    more = ["--device", DEVICE, "--seed", "1", "--final-episodes", "0", *options]
    done = subprocess.run(
        [*words, *more], capture_output=True, text=True, timeout=500, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    events = list(run_store.read_events(run_dir))
    assert isinstance(events[-1], RunFinished)
    return [event.stats for event in events if isinstance(event, UpdateFinished)]


def need(cards: int) -> None:
    if torch.cuda.device_count() < cards:
        pytest.skip(f"this machine has fewer than {cards} GPUs")


@pytest.mark.parametrize("trained", ["lora.layers=head", "lora.layers=all", "full_finetuning=true"])
def test_what_a_run_on_a_gpu_samples_is_what_its_learner_scores(
    tmp_path: Path, model: str, trained: str
) -> None:
    need(1)
    updates = updates_of(
        tmp_path / "run", model, "--set", trained, "--envs", "32", "--set", "ppo.batch_size=128"
    )
    assert len(updates) >= 3
    assert max(stats.first_ratio for stats in updates) < 1e-3


def test_two_ranks_on_two_gpus_learn_in_step(tmp_path: Path, model: str) -> None:
    need(2)
    updates = updates_of(tmp_path / "run", model, "--ranks", "2", "--set", "ppo.batch_size=128")
    assert len(updates) >= 3
    assert max(stats.first_ratio for stats in updates) < 1e-3
    assert all(stats.turns > 0 for stats in updates)
