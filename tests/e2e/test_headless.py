"""`train` and `eval` as commands, with the model that ships."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.cli.main import app
from llamagym_tui.runs import run_store

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
    assert (figures["agent"], figures["seed"], figures["run_dir"]) == ("blackjack", 1, str(run_dir))
    assert figures["episodes"] == 64
    assert figures["elapsed_s"] > 0
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
    assert found["episodes"] == 64
    assert -1 <= found["mean_return"] <= 1
