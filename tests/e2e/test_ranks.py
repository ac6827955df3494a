"""Two ranks play and train together, end together, and go on in another number."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from llamagym_tui.protocol.events import (
    EpisodesCounted,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.runs.run_store import read_events
from llamagym_tui.trainer.ranks import _see_one_gpu

pytestmark = pytest.mark.timeout(400)


def train(
    run_dir: Path, *arguments: str, every_s: int = 0, **more: object
) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "llamagym_tui",
        "train",
        *arguments,
        "--run-dir",
        str(run_dir),
        "--json",
    ]
    command += [
        "--final-episodes",
        "0",
        "--set",
        f"checkpoint_every_s={every_s}",
        "--set",
        "ppo.batch_size=128",
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def trained(run_dir: Path, *arguments: str) -> dict[str, object]:
    process = train(run_dir, *arguments)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    return json.loads(out)


def other_rank(process: subprocess.Popen[str]) -> int:
    """Its process id, once it was started."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for child in psutil.Process(process.pid).children():
            if "spawn_main" in " ".join(child.cmdline()):
                return child.pid
        time.sleep(0.05)
    raise AssertionError("no other rank was started")


def warnings(run_dir: Path) -> list[str]:
    return [event.message for event in read_events(run_dir) if isinstance(event, WarningRaised)]


@pytest.mark.slow
def test_two_ranks_train_and_the_run_goes_on_with_any_number(tmp_path):
    run = tmp_path / "run"
    found = trained(run, "blackjack", "--ranks", "2", "--envs", "32", "--episodes", "401")
    assert found["episodes"] == 401
    updates = [event.stats for event in read_events(run) if isinstance(event, UpdateFinished)]
    assert len(updates) >= 2
    assert all(each.first_ratio < 1e-4 and each.turns >= 128 for each in updates)
    counted = [event for event in read_events(run) if isinstance(event, EpisodesCounted)]
    assert counted[-1].episodes == 401
    assert trained(run, "--resume", "--ranks", "2", "--episodes", "600")["episodes"] == 600
    assert trained(run, "--resume", "--ranks", "1", "--episodes", "700")["episodes"] == 700
    assert trained(run, "--resume", "--ranks", "3", "--episodes", "760")["episodes"] == 760


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_run_with_a_sentence_and_a_checkpoint(tmp_path):
    run = tmp_path / "run"
    process = train(run, "blackjack", "--ranks", "2", "--envs", "32", every_s=600)
    until = time.monotonic() + 120
    while not (run / "model" / "learner.msgpack").exists() and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(1)  # something more is played
    os.kill(other_rank(process), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert (
        "Rank 1 has ended (SIGKILL), so all 2 have ended; --resume goes on from the last checkpoint"
        in err
    )
    state = msgspec.msgpack.decode((run / "model" / "learner.msgpack").read_bytes())
    assert state["learner"]["updates"] >= 1
    assert trained(run, "--resume", "--ranks", "2", "--episodes", "1")["updates"] >= 1


@pytest.mark.slow
def test_under_torchrun_the_same_command_is_one_run(tmp_path):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    command += ["-m", "llamagym_tui", "train", "blackjack", "--envs", "32", "--episodes", "200"]
    command += ["--final-episodes", "0", "--json"]
    env = os.environ | {"LLAMAGYM_TUI_DATA": str(tmp_path)}
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=True, env=env
    )
    assert json.loads(found.stdout)["episodes"] == 200
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "config.json").read_text())["ranks"] == 2


@pytest.mark.parametrize(
    ("visible", "count", "rank", "seen"),
    [
        (None, 4, 1, "1"),
        (None, 2, 3, "1"),
        ("5,7", 2, 1, "7"),
        ("5,7", 2, 2, "5"),
        (None, 0, 1, None),
        ("", 0, 1, ""),
    ],
)
def test_each_rank_of_a_node_sees_one_of_its_gpus(monkeypatch, visible, count, rank, seen):
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    _see_one_gpu(rank)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == seen
