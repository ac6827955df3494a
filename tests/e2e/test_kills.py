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
