"""A program in a pseudo-terminal of 120x34, as a person's terminal runs it. POSIX only."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

COLUMNS = 120
ROWS = 34
PATIENCE_S = 30.0


class Terminal:
    """Starts the program at once; leaving it as a context kills the program and its children."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        ours, its = pty.openpty()
        self._ours = ours
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._began_s = time.perf_counter()
        colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command,
            stdin=its,
            stdout=its,
            stderr=its,
            env={**env, **colours},
            cwd=cwd,
            start_new_session=True,
        )
        os.close(its)
        self._last = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)

    def elapsed_s(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._began_s

    def write(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def read(self, timeout_s: float) -> bytes:
        """What is painted next; empty if nothing is."""
        if not select.select([self._ours], [], [], timeout_s)[0]:
            return b""
        try:
            painted = os.read(self._ours, 1 << 20)
        except OSError as error:
            raise SystemExit(f"The program ended; its terminal showed: {self._last!r}") from error
        self._last = (self._last + painted)[-6000:]
        return painted

    def watch(self, seconds: float) -> None:
        """Read what is painted for a while."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self.read(left)

    def wait(
        self, is_there: Callable[[bytes], bool], what: str = "This", patience_s: float = PATIENCE_S
    ) -> None:
        """Read until a condition holds for all that was painted since the call; ends the program if it never does."""
        end, painted = time.perf_counter() + patience_s, b""
        while not is_there(painted):
            if time.perf_counter() > end:
                raise SystemExit(
                    f"{what} did not come within {patience_s:.0f} s; the terminal showed: {self._last!r}"
                )
            painted += self.read(0.5)
