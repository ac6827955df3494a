"""The terminal as a thing that may go away: the app hears of it and leaves in order.

Whoever closes a window or a session sends a hang-up to the process that it started, and not to what that one started
in turn, as `make play` does. But all of them can see that their terminal has hung up: from then on reading gives
nothing, at once and for ever, and writing fails. POSIX only.
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
"""Milliseconds between two looks at a terminal whose end is not told."""


class TerminalClosed(Message):
    """Nobody sees the app any more."""


class Terminal(LinuxDriver):
    """Textual's driver, and a watch over its terminal."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        """Begin to watch; the arguments are Textual's."""
        super().__init__(*args, **settings)
        self._file = _Screen()  # type: ignore[assignment]
        signal.signal(signal.SIGHUP, lambda *_: self.send_message(TerminalClosed()))
        if self.input_tty:
            Thread(target=self._watch, name="terminal-watch", daemon=True).start()

    def _watch(self) -> None:
        hang_up = select.poll()
        hang_up.register(self.fileno, 0)  # hang-ups are told unasked
        while os.isatty(self.fileno):
            told = [event for _, event in hang_up.poll(LOOK_MS)]
            if any(event & (select.POLLHUP | select.POLLERR) for event in told):
                break
            if told:  # macOS says at once that it polls no terminal; then only looking is left
                time.sleep(LOOK_MS / 1000)
        self.exit_event.set()  # the input thread would go on reading nothing
        if not self._loop.is_closed():
            self.send_message(TerminalClosed())

    def run_input_thread(self) -> None:
        """Dispatch input until the terminal has gone."""
        with contextlib.suppress(OSError):
            super().run_input_thread()


class _Screen:
    """The terminal's output; what nobody can see is dropped, so that writers neither fail nor wait."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.__stderr__.write(text)  # type: ignore[union-attr]

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.__stderr__.flush()  # type: ignore[union-attr]

    def fileno(self) -> int:
        return sys.__stderr__.fileno()  # type: ignore[union-attr]
