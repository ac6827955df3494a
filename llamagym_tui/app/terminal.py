"""Textual's drivers, which here survive a terminal or a visitor that is gone, and end the app then. POSIX only."""

import contextlib
from typing import TextIO

from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.web_driver import WebDriver


class TerminalDriver(LinuxDriver):
    def start_application_mode(self) -> None:
        assert self._file is not None
        self._file = _Output(self._file)  # type: ignore[assignment]
        super().start_application_mode()

    def _disable_mouse_support(self) -> None:
        """Leave reports in pixels, too, which Textual forgets."""
        if self._mouse_pixels:
            self.write("\x1b[?1016l")
        super()._disable_mouse_support()

    def run_input_thread(self) -> None:
        with contextlib.suppress(OSError):
            super().run_input_thread()
        self._app.call_later(self._app.exit)


class BrowserDriver(WebDriver):
    def run_input_thread(self) -> None:
        super().run_input_thread()
        self._app.call_later(self._app.exit)


class _Output:
    """The terminal's output; what a terminal that is gone does not take is dropped."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self.fileno = terminal.fileno

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._terminal.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._terminal.flush()
