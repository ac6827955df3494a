"""Textual's drivers, which here survive a terminal or a visitor that is gone, and end the app then. POSIX only."""

import contextlib
import sys

from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.web_driver import WebDriver


class TerminalDriver(LinuxDriver):
    def start_application_mode(self) -> None:
        self._file = _Output()  # type: ignore[assignment]
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

    def write(self, text: str) -> None:
        assert sys.__stderr__ is not None
        with contextlib.suppress(OSError):
            sys.__stderr__.write(text)

    def flush(self) -> None:
        assert sys.__stderr__ is not None
        with contextlib.suppress(OSError):
            sys.__stderr__.flush()

    def fileno(self) -> int:
        assert sys.__stderr__ is not None
        return sys.__stderr__.fileno()
