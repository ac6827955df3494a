"""A terminal that is closed ends the app and its trainer, whether anybody tells the app of it or not."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
APP = """
import sys
from pathlib import Path
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.app.trainer_client import TrainerClient
from tests import fakes
folder, script = Path(sys.argv[1]), sys.argv[2]
client = TrainerClient((sys.executable, "-m", "tests.fakes", script))
LlamaGymApp(fakes.config(folder / "run"), client_factory=lambda: client).run()
(folder / "trainer's exit code").write_text(str(client.exit_code))
"""


def opened(folder: Path, script: str) -> tuple[subprocess.Popen[bytes], int]:
    """An app in a terminal of which it is not the leader, with a trainer that is up; and our end of the terminal."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 80))
    process = subprocess.Popen(
        [sys.executable, "-c", APP, str(folder), script],
        stdin=its,
        stdout=its,
        stderr=its,
        env={
            **os.environ,
            "TERM": "xterm-256color",
            "LLAMAGYM_TUI_DATA": str(folder),
            "LLAMAGYM_TUI_CONFIG": str(folder / "config"),
        },
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(its)
    log, end = folder / "run" / "trainer.log", time.monotonic() + PATIENCE_S
    while not (log.exists() and log.read_text()) and time.monotonic() < end:
        if select.select([ours], [], [], 0.1)[0]:
            os.read(ours, 65536)
    return process, ours


def trainers_exit_code(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """What the trainer ended with, once the app has ended."""
    try:
        process.wait(PATIENCE_S)
    finally:
        process.kill()
    return (folder / "trainer's exit code").read_text()


@pytest.mark.parametrize("script", ["quiet", "flood"])
def test_a_terminal_that_is_gone_ends_app_and_trainer_though_nobody_tells(tmp_path: Path, script: str):
    process, terminal = opened(tmp_path, script)
    os.close(terminal)
    assert trainers_exit_code(tmp_path, process) == "0"


def test_a_hang_up_ends_app_and_trainer(tmp_path: Path):
    process, terminal = opened(tmp_path, "quiet")
    process.send_signal(signal.SIGHUP)
    assert trainers_exit_code(tmp_path, process) == "0"
    os.close(terminal)
