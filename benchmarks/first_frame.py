"""Time to the first frame of the playground, beside an empty Textual app, each in a pseudo-terminal.

The two run in turn, on the same machine in the same minutes; what counts is the ratio of the medians, printed last.
POSIX only.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time

EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("first-frame")
Empty().run()
"""
COLUMNS, ROWS = 120, 34
GIVE_UP_S = 30.0


def seconds_to_frame(command: list[str], needle: bytes, env: dict[str, str]) -> float:
    """Seconds from the start of a command until its terminal shows a text and the paint has ended."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=env, start_new_session=True, close_fds=True
    )
    os.close(child)
    try:
        return _wait_for(parent, needle, began)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(parent)


def _wait_for(terminal: int, needle: bytes, began: float) -> float:
    seen = b""
    while time.perf_counter() - began < GIVE_UP_S:
        ready, _, _ = select.select([terminal], [], [], 0.5)
        if ready:
            seen += os.read(terminal, 65536)
        if needle in seen:
            return time.perf_counter() - began
    raise SystemExit(f"{needle!r} never came; the terminal showed: {seen[-2000:]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="measurements of each, after one that is not counted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LLAMAGYM_TUI_DATA": data}
        # As an installed program has it: compiled at the first start, which is not counted.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env["PYTHONPYCACHEPREFIX"] = f"{data}/compiled"
        subjects = {
            "empty": ([sys.executable, "-c", EMPTY], b"first-frame"),
            "playground": ([sys.executable, "-m", "llamagym_tui", "blackjack"], b"Play yourself"),
        }
        times: dict[str, list[float]] = {name: [] for name in subjects}
        for run in range(options.runs + 1):
            for name, (command, needle) in subjects.items():
                elapsed_s = seconds_to_frame(command, needle, env)
                if run:
                    times[name].append(elapsed_s)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median_s in medians.items():
        print(f"{name:<11} median {median_s:.3f} s   all {' '.join(f'{value:.3f}' for value in times[name])}")
    print(f"ratio {medians['playground'] / medians['empty']:.2f}")


if __name__ == "__main__":
    main()
