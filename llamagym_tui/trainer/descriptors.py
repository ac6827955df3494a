"""Redirects library prints by file descriptor to a log: they never reach the wire, stdout or the screen."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

from llamagym_tui.user_files import growing_file

STDIN = 0
"""The descriptor of standard input."""
STDOUT = 1
"""The descriptor of standard output."""
STDERR = 2
"""The descriptor of standard error."""


class Wire(NamedTuple):
    """The pipes of a trainer process, unbuffered."""

    commands: BinaryIO
    events: BinaryIO


def take_over_wire(log_path: Path) -> Wire:
    """The original stdin and stdout as the wire; from now on 0 reads nothing, and 1 and 2 write to the log."""
    wire = Wire(io.FileIO(os.dup(STDIN), "rb"), io.FileIO(os.dup(STDOUT), "wb"))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, STDIN)
    try:
        with growing_file(log_path) as log:
            printed = os.dup(log.fileno())
    except OSError:  # whoever writes into the run folder next reports it
        printed = os.dup(nothing)
    os.dup2(printed, STDOUT)
    os.dup2(printed, STDERR)
    os.close(nothing)
    os.close(printed)
    sys.stdout = prints_to(STDOUT)
    sys.stderr = prints_to(STDERR)
    return wire


class _Unfailing(io.FileIO):
    """A file that drops what it cannot write: a print on a full disk ends no run."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content) or 0
        except OSError:
            return memoryview(content).nbytes


def prints_to(descriptor: int) -> TextIO:
    """A stream for prints, which never fails; it leaves the descriptor open.

    It has no buffer of bytes: Python aborts a process that ends while a daemon thread holds the lock of one.
    """
    raw = _Unfailing(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


@contextmanager
def diverted(log: BinaryIO, *, stderr: bool) -> Iterator[TextIO]:
    """Redirect stdout to a log for a while, and stderr too if requested; yields the real stderr."""
    _flush()
    kept = {STDOUT: os.dup(STDOUT), STDERR: os.dup(STDERR)}
    terminal = os.fdopen(os.dup(STDERR), "w", encoding="utf-8", errors="replace", buffering=1)
    errors = prints_to(STDERR) if stderr else sys.stderr
    try:
        os.dup2(log.fileno(), STDOUT)
        if stderr:
            os.dup2(log.fileno(), STDERR)
        with prints_to(STDOUT) as prints, redirect_stdout(prints), redirect_stderr(errors):
            yield terminal
    finally:
        errors.flush()
        _flush()  # before the way back: what a library left in a buffer belongs to the log
        for descriptor, original in kept.items():
            os.dup2(original, descriptor)
            os.close(original)
        terminal.close()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
