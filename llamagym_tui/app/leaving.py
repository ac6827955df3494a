"""The ends of the app: by request, by a signal, by a fault. A part of `LlamaGymApp`.

First the terminal is given back, then the trainer saves and ends, then a sentence for the shell is printed. The
traceback of a fault goes to `log_path()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import work
from textual.app import ScreenStackError
from textual.css.query import NoMatches
from textual.widget import MountError
from textual.worker import WorkerFailed

from llamagym_tui import user_files
from llamagym_tui.app.personal import PersonalApp
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.commands import Stop
from llamagym_tui.protocol.literal import echo, literal, one_line
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.settings import RunConfig
from llamagym_tui.state.run import RunState, initial_state, requested

if TYPE_CHECKING:
    from llamagym_tui.app.trainer_client import TrainerClient
    from llamagym_tui.screens.play.table import DemoRecorder

STOP_S = 60.0
"""Seconds that a trainer has to write its checkpoint before it is ended by force."""
TOO_LATE = (MountError, NoMatches, ScreenStackError)
"""Errors of widgets that are still at work while the app is left."""


class Leaving(PersonalApp):
    _take_in: Callable[[RunState], None]
    _forget_run: Callable[[], Awaitable[None]]
    _client: TrainerClient | None = None
    _has_home = False
    """True if home is the first screen."""
    _is_leaving = False
    _hurry: asyncio.Future[bool] | None = None
    """Ends a trainer by force that nobody waits for any longer."""
    saved = True
    """False if the trainer was ended before it had saved."""
    fault: Exception | None = None
    """The fault that ended the app."""

    def __init__(self, config: RunConfig | None) -> None:
        super().__init__()
        self.config = config
        self.run_state = initial_state(config) if config else None
        self._recorders: dict[str, DemoRecorder] = {}
        """What writes demonstrations, by the names of agents."""

    # By request

    async def action_quit(self) -> None:
        """Leave, after a question if something would be interrupted or lost; the second time leave at once."""
        self._ask_first([*self._interrupted(), *self._unsaved()], self._leave, "quit?")

    async def action_leave_run(self) -> None:
        """Leave a run for the screen where it was begun; leave the app if the command line began it."""
        if self._has_home:
            self._ask_first(self._interrupted(), self._go_home, "leave the run?")
        else:
            await self.action_quit()

    def _interrupted(self) -> list[str]:
        """A sentence on a training under way."""
        state = self.run_state
        if state is None or not state.training:
            return []
        if not state.is_kept:
            return [
                "The model is being trained, but no turn has been played yet, so this run has no checkpoint to resume."
            ]
        if state.unwritten:
            return [
                f"The model is being trained, and nothing can be written: {state.unwritten} What was learnt since the "
                "last checkpoint is lost, unless there is room by then."
            ]
        return [
            f"The model is being trained. Leaving writes a checkpoint. {key_of(self, 'runs.resume', 'r')} in the list "
            f"of runs resumes it, or --resume --run-dir {state.run_dir}"
        ]

    def _unsaved(self) -> list[str]:
        """A sentence on each game of which episodes are not on disk."""
        return [
            f"{recorder.writer.waiting} of your episodes are not on disk and would be lost. {recorder.writer.fault}"
            for recorder in self._recorders.values()
            if recorder.writer.waiting
        ]

    def _ask_first(self, reasons: list[str], leave: Callable[[float], object], title: str) -> None:
        """Call `leave` with the seconds that a trainer has to save; if there are reasons against it, ask first."""
        from llamagym_tui.screens.widgets.dialogs import QuitDialog

        if self._is_leaving:
            leave(0.0)
        elif reasons and not isinstance(self.screen, QuitDialog):
            QuitDialog(title, *reasons, yes="leave", no="stay").ask(self, lambda: leave(STOP_S))
        else:
            leave(STOP_S)

    async def _stop_trainer(self, timeout_s: float) -> None:
        from llamagym_tui.runs.run_store import RunStore

        self._is_leaving = True
        if self._client is not None and self.run_state is not None and self.run_state.live:
            self._take_in(requested(self.run_state, Stop()))
            self.saved = await self._client.stop(timeout_s)
            if not self.run_state.is_kept:
                RunStore(self.run_state.run_dir).discard_unbegun(keeps_log=False)

    @work(exclusive=True, group="leave")
    async def _go_home(self, timeout_s: float) -> None:
        await self._stop_trainer(timeout_s)
        await self._forget_run()
        self._is_leaving = False

    @work(exclusive=True, group="leave")
    async def _leave(self, timeout_s: float) -> None:
        await self._stop_trainer(timeout_s)
        state = self.run_state
        failed = state is not None and state.failure and not state.recorded
        self.exit(return_code=1 if failed else 0)

    # By a signal

    async def run_async(self, **options: Any) -> Any:
        """Run the app; then, with the terminal given back, wait until its trainer has saved and ended."""
        if sys.platform != "win32":
            loop = asyncio.get_running_loop()
            # A hang-up comes twice, from the shell and from the system.
            loop.add_signal_handler(signal.SIGHUP, self.exit)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._end)
        try:
            return await super().run_async(**options)
        finally:
            for recorder in self._recorders.values():
                recorder.close()
            if self._client is not None and self._client.running:
                with contextlib.suppress(OSError):  # the terminal may be gone
                    echo("Saving the run; ctrl+c again ends without it.", to=sys.__stderr__)
                self.saved = await self._client.stop(STOP_S)

    def _end(self) -> None:
        """Leave the app; while its trainer saves, end that by force."""
        if self._exit and self._client is not None:
            self._hurry = asyncio.ensure_future(self._client.stop(0.0))
        self.exit()

    # By a fault

    def _handle_exception(self, error: Exception) -> None:
        """Leave after a fault; Textual would print all of it over the shell's screen."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            error = error.error
        _log(error)
        if (self._exit or not self._running) and isinstance(error, TOO_LATE):
            return
        self._return_code = 1
        if self._exception is None:
            self.fault = error
            self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()


def log_path() -> Path:
    """The file of tracebacks."""
    return user_files.data_dir() / "app.log"


def _log(error: Exception) -> None:
    path = log_path()
    text = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {''.join(traceback.format_exception(error))}\n"
    with contextlib.suppress(OSError):
        user_files.make_folder(path.parent)
        with user_files.growing_file(path) as log:
            log.write(literal(text).encode())


def run_to_end(app: Leaving) -> int:
    """Run an app in the terminal, and print its parting words. Returns the exit code. Raises LlamaGymError after a
    fault."""
    app.run()
    state = app.run_state
    text = ""
    if app.config is not None and state is not None:
        text = parting_text(app.config, state, saved=app.saved)
    if app.fault is not None:
        what = one_line(f"{type(app.fault).__name__}: {app.fault}", 200)
        raise LlamaGymError(
            f"The app failed ({what}). Its traceback is in {log_path()}. {text}".rstrip()
        ) from app.fault
    if text:
        with contextlib.suppress(OSError):  # the terminal may be gone
            echo(text, to=sys.stderr if state is not None and state.failure else sys.stdout)
    return app.return_code or 0


def parting_text(config: RunConfig, state: RunState, *, saved: bool = True) -> str:
    """For the shell: the failure of a run, or the command that resumes it; empty if it had not begun."""
    from llamagym_tui.runs.run_store import has_checkpoint

    if state.failure:
        return state.failure
    if state.checkpoint is None and not has_checkpoint(Path(config.run_dir)):
        return "" if state.run is None else "The run has no checkpoint to resume."
    again = shlex.join(["llamagym-tui", config.agent, "--resume", "--run-dir", config.run_dir])
    kept = "The run is kept."
    if not saved:
        kept = "The trainer was ended before it had saved: its last checkpoint is kept."
    return f"{kept} Resume with: {again}"
