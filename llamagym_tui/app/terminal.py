"""A terminal that may be closed: the app notices and leaves in order. POSIX only.

Closing a window sends a hang-up signal to the process that the window started, and not to the app if that process
started it, as `make play` does. But the app can see that its terminal has hung up: from then on reading gives nothing,
at once and for ever, and writing fails.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from threading import Thread
from typing import Any

from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

LOOK_MS = 1000
"""Milliseconds between two checks of a terminal that cannot be polled."""


class TerminalClosed(Message):
    """Nobody sees the app any more."""


class Terminal(LinuxDriver):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._file = _Screen()  # type: ignore[assignment]
        signal.signal(signal.SIGHUP, lambda *_: self.send_message(TerminalClosed()))
        if self.input_tty:
            Thread(target=self._watch, name="terminal-watch", daemon=True).start()

    def _watch(self) -> None:
        hang_up = select.poll()
        hang_up.register(self.fileno, 0)  # hang-ups are always reported
        while os.isatty(self.fileno):
            polled = [event for _, event in hang_up.poll(LOOK_MS)]
            if any(event & (select.POLLHUP | select.POLLERR) for event in polled):
                break
            if polled:  # macOS returns at once, as it polls no terminal; then only `isatty` is left
                time.sleep(LOOK_MS / 1000)
        self.exit_event.set()  # the input thread would go on reading nothing
        if not self._loop.is_closed():
            self.send_message(TerminalClosed())

    def run_input_thread(self) -> None:
        with contextlib.suppress(OSError):
            super().run_input_thread()


class _Screen:
    """The terminal's output; after a hang-up writes are dropped, so that writers neither fail nor wait."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.__stderr__.write(text)  # type: ignore[union-attr]

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.__stderr__.flush()  # type: ignore[union-attr]

    def fileno(self) -> int:
        return sys.__stderr__.fileno()  # type: ignore[union-attr]
