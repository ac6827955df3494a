"""`train` and `eval` as commands, with the model that ships."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui import run_store
from llamagym_tui.cli.main import app
from llamagym_tui.protocol.events import CheckpointSaved, RunFinished, UpdateFinished

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "llamagym_tui", *map(str, words)]


def only_line(out: str) -> dict[str, Any]:
    (line,) = out.splitlines()
    figures: dict[str, Any] = json.loads(line)
    return figures


def test_a_run_is_trained_by_a_command_and_its_folder_evaluated(
    tmp_path: Path, model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    (tmp_path / "prompt.txt").write_text("Hit below 13.")
    trained = subprocess.run(
        command(
            *("train", "blackjack", "--model", model, "--run-dir", run_dir, "--episodes", 64, "--envs", 64),
            *("--seed", 1, "--threads", 1, "--prompt-file", tmp_path / "prompt.txt", "--final-episodes", 32, "--json"),
        ),
        capture_output=True, text=True, timeout=600, env=ENVIRONMENT, check=True,
    )  # fmt: skip
    figures = only_line(trained.stdout)
    assert list(figures) == [
        "agent", "model", "seed", "episodes", "env_steps", "updates", "elapsed_s", "episodes_per_s", "dropped",
        "evaluation", "last_update", "run_dir",
    ]  # fmt: skip
    assert (figures["agent"], figures["seed"], figures["run_dir"]) == ("blackjack", 1, str(run_dir))
    assert figures["episodes"] == 64
    assert figures["evaluation"]["episodes"] == 32
    assert -1 <= figures["evaluation"]["mean_return"] <= 1
    assert "Traceback" not in trained.stderr
    assert {"config.json", "events.jsonl", "trainer.log", "model"} <= {
        path.name for path in run_dir.iterdir()
    }
    assert run_store.last_settings(run_dir).system_prompt == "Hit below 13."

    capfd.readouterr()
    words = f"eval blackjack --model {run_dir} --episodes 64 --greedy --seed 7 --threads 1 --json"
    with pytest.raises(SystemExit, match=r"^0$"):
        app(words.split())
    found = only_line(capfd.readouterr().out)
    assert list(found) == [
        "agent", "model", "episodes", "mean_return", "return_stderr", "parse_failure_rate", "refusal_rate", "truncated",
        "dropped",
        "elapsed_s",
    ]  # fmt: skip
    assert found["episodes"] == 64
    assert -1 <= found["mean_return"] <= 1


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="terminals are POSIX")
@pytest.mark.parametrize(
    ("word", "seen"), [("train", "episodes"), ("sft --episodes 0", "warm start: step")]
)
def test_a_terminal_that_hangs_up_leaves_a_run_that_goes_on(
    tmp_path: Path, word: str, seen: str
) -> None:
    from tests.app.terminal_app import TerminalApp

    run_dir = tmp_path / "run"
    program = command(*word.split(), "blackjack", "--run-dir", run_dir, "--threads", 1)
    with TerminalApp(tmp_path, command=program) as terminal:
        terminal.sees(seen)
        terminal.hang_up()
        terminal.signal(signal.SIGHUP)
        terminal.signal(signal.SIGHUP)
        terminal.process.wait(60)
    assert run_store.has_checkpoint(run_dir)


@pytest.mark.slow  # tests/cli/test_headless.py does so in one process
@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_ctrl_c_ends_training_with_a_checkpoint_and_its_line(tmp_path: Path, model: str) -> None:
    process = subprocess.Popen(
        command("train", "blackjack", "--model", model, "--run-dir", tmp_path, "--envs", 32, "--threads", 1, "--json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    try:
        wait_for(tmp_path, UpdateFinished)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0
    assert only_line(out)["updates"] >= 1
    kept = list(run_store.read_events(tmp_path))
    assert isinstance(kept[-1], RunFinished)
    assert any(isinstance(event, CheckpointSaved) for event in kept)


def wait_for(run_dir: Path, kind: type, patience_s: float = 300) -> None:
    """Until an event of a kind stands in the run's file."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if run_store.is_run(run_dir) and any(
            isinstance(event, kind) for event in run_store.read_events(run_dir)
        ):
            return
        time.sleep(0.2)
    raise AssertionError(f"no {kind.__name__} within {patience_s} s")
