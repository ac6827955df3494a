"""A real trainer that is killed, again and again: the run goes on whole, and ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llamagym_tui import run_store
from llamagym_tui.protocol.events import (
    CheckpointSaved,
)

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
QUICK = [
    *("--envs", "16", "--threads", "1", "--seed", "3"),
    *(
        f"--set=ppo.{setting}"
        for setting in (
            "batch_size=24",
            "mini_batch_size=24",
            "epochs=1",
            "critic_warmup_updates=0",
        )
    ),
    *("--set=checkpoint_every_s=0", "--set=generation.max_new_tokens=8"),
]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")]


def trained(run_dir: Path, *more: str) -> subprocess.Popen[str]:
    resume = ["--resume"] if (run_dir / "model").exists() else []
    command = [sys.executable, "-m", "llamagym_tui", "train", *([] if resume else ["frozen_lake"])]
    return subprocess.Popen(
        [*command, "--run-dir", str(run_dir), *QUICK, *more, *resume],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def checkpoints(run_dir: Path) -> list[int]:
    if not run_store.is_run(run_dir):
        return []
    return [
        event.update
        for event in run_store.read_events(run_dir)
        if isinstance(event, CheckpointSaved)
    ]


<<<<<<< HEAD
@pytest.mark.timeout(7200)
def test_a_run_killed_at_random_moments_always_goes_on_whole(tmp_path: Path) -> None:
    """`LLAMAGYM_TUI_KILLS` kills of one run (default: 100), most of them while it plays, trains and saves."""
    run_dir, draw = tmp_path / "run", random.Random(0)
    process = trained(run_dir)
    while not checkpoints(run_dir):
        time.sleep(0.1)
        assert process.poll() is None, process.communicate()
    for _ in range(KILLS):
        known = len(checkpoints(run_dir))
        # Half of the kills come at any moment, loading included; half within a second after a checkpoint.
        if draw.random() < 0.5:
            time.sleep(draw.uniform(0, 8))
        else:
            while len(checkpoints(run_dir)) == known and process.poll() is None:
                time.sleep(0.05)
            time.sleep(draw.uniform(0, 1))
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = trained(run_dir)
    known = len(checkpoints(run_dir))
    while len(checkpoints(run_dir)) == known:
        time.sleep(0.1)
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, (out, err)

    events = list(run_store.read_events(run_dir))
    assert not [event for event in events if isinstance(event, SessionFailed | WarningRaised)]
    saved = 0
    for event in events:
        if isinstance(event, CheckpointSaved):
            assert event.update >= saved
            saved = event.update
        if isinstance(event, RunStarted):
            # A checkpoint may be in place before its event stands in the file; none is older than that.
            assert event.updates >= saved
    assert all(before.at_s <= after.at_s for before, after in pairwise(events))
    updates = [event.update for event in events if isinstance(event, UpdateFinished)]
    print(
        f"{KILLS} kills, {sum(isinstance(event, RunStarted) for event in events)} sessions that began to play, "
        f"{saved} updates kept, {len(updates)} made, {len(events)} events read"
    )
    assert {path.name for path in run_dir.iterdir() if "model" in path.name} == {
        "model",
        "model.old",
    }
    assert not list(run_dir.glob(".llamagym-*"))
=======
@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", ["generate", "score"])
@pytest.mark.parametrize("full", ["true", "false"])
def test_a_trainer_killed_after_a_checkpoint_ends_with_the_same_files_as_one_left_alone(
    tmp_path: Path, policy: str, full: str
) -> None:
    settings = (
        "--episodes",
        "96",
        f"--set=generation.policy={policy}",
        f"--set=full_finetuning={full}",
    )
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert trained(straight, *settings).wait(timeout=400) == 0
    process = trained(killed, *settings)
    deadline = time.monotonic() + 300
    while len(checkpoints(killed)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert trained(killed, *settings).wait(timeout=400) == 0
    files = {path.name: path.read_bytes() for path in (straight / "model").glob("*.safetensors")}
    assert len(files) == 3
    assert {
        path.name: path.read_bytes() for path in (killed / "model").glob("*.safetensors")
    } == files
    assert run_store.read_config(killed).threads == 1
>>>>>>> main
