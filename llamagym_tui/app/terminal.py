"""A terminal that is given back whatever happens, and that may be closed. POSIX only.

A signal to end, or a terminal that hangs up, makes the app leave in order (`MustLeave`); if it does not within
`LEAVE_S`, or is signalled again, the process ends without it. Closing a window sends a hang-up signal to the process
that the window started, and not to the app if that process started it, as `make play` does. But the app can see that
its terminal has hung up: from then on reading gives nothing, at once and for ever, and writing fails.
"""

import contextlib
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Callable
from threading import Thread, Timer
from typing import Any

from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

LOOK_MS = 1000
"""Milliseconds between two checks of a terminal that cannot be polled."""
LEAVE_S = 5.0
"""Seconds that an app has to give its terminal back after a signal."""
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
MODES_OFF = b"".join(
    b"\x1b[?%dl" % mode for mode in (1000, 1002, 1003, 1015, 1016, 1006, 1004, 2004, 2048)
)
"""Leaves mouse reporting, reports of focus and size, and bracketed paste."""
TERMINAL_OF_A_SHELL = MODES_OFF + b"\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h"
"""Also wraps lines, gives keys their usual codes, leaves the alternate screen, and shows the cursor."""


class MustLeave(Message):
    """The app is to end: a signal came, or nobody sees it any more."""


class Terminal(LinuxDriver):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._screen = _Screen(self._failed)
        self._file = self._screen  # type: ignore[assignment]
        self._is_taken = False
        """Whether the terminal may be in other modes than the shell's."""
        self._signals = 0
        for number in ENDING:
            signal.signal(number, self._on_signal)
        if self.input_tty:
            Thread(target=self._watch, name="terminal-watch", daemon=True).start()

    # Giving it back

    def start_application_mode(self) -> None:
        self._is_taken = True
        super().start_application_mode()

    def disable_input(self) -> None:
        if (
            self._is_taken
        ):  # else the terminal may be another job's, and touching it would stop this process
            super().disable_input()

    def stop_application_mode(self) -> None:
        if not self._is_taken:
            return
        if self._mouse_pixels:
            self.write("\x1b[?1016l")
        super().stop_application_mode()
        if not self._screen.failed:
            self._is_taken = False

    def close(self) -> None:
        if self._is_writing:
            super().close()

    def write(self, data: str) -> None:
        if self._is_writing:  # else nothing would take it off the queue, which soon is full
            super().write(data)

    @property
    def _is_writing(self) -> bool:
        return self._writer_thread is not None and self._writer_thread.is_alive()

    def give_back(self) -> None:
        """Have all modes as the shell had them: what was not left in order is left by force."""
        self._auto_restart = False
        self.close()
        if self._is_taken:
            self._is_taken = False
            self._restore()

    def _restore(self) -> None:
        with contextlib.suppress(OSError, termios.error):
            if self.attrs_before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
            os.set_blocking(
                self._screen.fileno(), False
            )  # a terminal that takes nothing keeps nobody here
            os.write(self._screen.fileno(), TERMINAL_OF_A_SHELL)
            os.set_blocking(self._screen.fileno(), True)

    # Signals

    def _on_signal(self, number: int, frame: object) -> None:
        self._signals += (
            number != signal.SIGHUP
        )  # which comes twice, from the shell and from the system
        self._auto_restart = False  # one that was stopped goes on only to end
        if self._signals < 2:
            self._must_leave()
            hurry = Timer(LEAVE_S, self._end_unless_left, [number])
            hurry.daemon = True
            hurry.start()
        elif self._signals == 2 and not self._is_taken and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._app.at_once.set)  # type: ignore[attr-defined]
        else:
            self._end_now(number)

    def _end_unless_left(self, number: int) -> None:
        if self._is_taken:
            self._end_now(number)

    def _end_now(self, number: int) -> None:
        """End the process; the trainer sees that its commands end, and saves."""
        if self._is_taken:
            self._restore()
        os._exit(128 + number)

    def _must_leave(self) -> None:
        if not self._loop.is_closed():
            self.send_message(MustLeave())

    def _failed(self, error: Exception) -> None:
        """End the app because of a fault in one of the driver's threads."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._app._handle_exception, error)

    # Suspending

    def _sigtstp_application(self, *_: object) -> None:
        """Stop with all of the shell's job; one that belongs to no shell goes on at once."""
        if self._auto_restart:
            self.suspend_application_mode()
            self._must_signal_resume = True
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._sigtstp_application)
        if self._auto_restart and not self._is_taken:
            self.resume_application_mode()

    def _sigcont_application(self, *_: object) -> None:
        if self._auto_restart:
            if self._is_taken:  # it was stopped without a word, and the shell has set its own modes
                self.suspend_application_mode()
                self._must_signal_resume = True
            self.resume_application_mode()

    # The threads

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
        self._must_leave()

    def run_input_thread(self) -> None:
        try:
            super().run_input_thread()
        except OSError:
            self._must_leave()
        except Exception as error:
            self._failed(error)


class _Screen:
    """The terminal's output; after a hang-up writes are dropped, so that writers neither fail nor wait."""

    def __init__(self, on_fault: Callable[[Exception], None]) -> None:
        self.failed = False
        self._on_fault = on_fault

    def write(self, text: str) -> None:
        self._do(lambda: sys.__stderr__.write(text))  # type: ignore[union-attr]

    def flush(self) -> None:
        self._do(sys.__stderr__.flush)  # type: ignore[union-attr]

    def _do(self, write: Callable[[], object]) -> None:
        try:
            if not self.failed:
                write()
        except OSError:
            pass
        except Exception as error:
            self.failed = True
            self._on_fault(error)

    def fileno(self) -> int:
        return sys.__stderr__.fileno()  # type: ignore[union-attr]
