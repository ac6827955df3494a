"""The main path needs no network: app, trainer, bundled model, first update, with every socket but local ones refused.

No variable of a hub is set: it is the sockets that fail, and every attempt is written down.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")

PATIENCE_S = 300.0
BLOCKED = """
import os, socket, traceback

def refuse(*arguments, **named):
    with open(os.environ["TRIED"], "a") as tried:
        tried.write("".join(traceback.format_stack(limit=12)))
    raise OSError("the network is blocked")

class LocalSocket(socket.socket):
    def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
        if family != socket.AF_UNIX:
            refuse()
        super().__init__(family, type, proto, fileno)

socket.socket = LocalSocket
socket.getaddrinfo = socket.gethostbyname = refuse
"""


def run_in_terminal(
    folder: Path, command: list[str], environment: dict[str, str], until: str
) -> bool:
    """Run a command in a terminal of its own; whether its event log came to hold a text."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (34, 120))
    process = subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True
    )
    os.close(its)
    events, end, found = folder / "run" / "events.jsonl", time.monotonic() + PATIENCE_S, False
    while not found and process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):  # it has ended
            if select.select([ours], [], [], 0.1)[0]:
                os.read(ours, 65536)
        found = events.exists() and until in events.read_text(encoding="utf-8")
    process.terminate()
    process.wait(60)
    os.close(ours)
    return found


@pytest.mark.slow
def test_from_the_first_frame_to_the_first_update_nothing_asks_for_the_network(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    tried, run = tmp_path / "tried", tmp_path / "run"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS"))
    }
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    own = {
        "TRIED": str(tried),
        "PYTHONPATH": paths,
        "TERM": "xterm-256color",
        "HF_HOME": str(tmp_path / "hub"),
    }
    own |= {
        "LLAMAGYM_TUI_DATA": str(tmp_path / "data"),
        "LLAMAGYM_TUI_CONFIG": str(tmp_path / "config"),
    }
    probe = [sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 9))"]
    assert subprocess.run(probe, env=kept | own, capture_output=True, check=False).returncode == 1
    assert "create_connection" in tried.read_text()
    tried.unlink()
    command = [sys.executable, "-c", "from llamagym_tui.cli.start import main; main()"]
    command += ["blackjack", "--run-dir", str(run), "--envs", "16"]
    assert run_in_terminal(tmp_path, command, kept | own, until='"UpdateFinished"')
    assert not tried.exists(), tried.read_text()
