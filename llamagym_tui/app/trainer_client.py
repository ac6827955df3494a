"""The UI's side of the trainer process: starts it, exchanges frames over its own two pipes, notices its death.

The child is never an orphan: its commands end when this process does, and it exits on end-of-file; `stop` sends a
command, waits, terminates, then kills. Everything that the child prints goes to the run's log, not to the terminal.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from llamagym_tui.errors import LlamaGymError, WireError
from llamagym_tui.protocol.commands import AnyCommand, StartRun, Stop
from llamagym_tui.protocol.events import PROTOCOL_VERSION, AnyEvent, RunFinished, SessionFailed
from llamagym_tui.protocol.wire import decode_event, encoded, framed, read_frame_async
from llamagym_tui.settings import RunConfig
from llamagym_tui.user_files import growing_file, make_folder

BUFFER_BYTES = 1024 * 1024
"""Bytes of events that may wait here before the child blocks."""
GRACE_S = 3.0
"""Seconds for a process to end after it closed its pipe or was terminated."""


class TrainerClient:
    def __init__(self, command: Sequence[str] = ()) -> None:
        """A client of a trainer process that is not started; tests pass another `command`."""
        self.log_path: Path | None = None
        self._command = command
        self._config: RunConfig | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reading = False
        self._stopping = False
        self._finished = False
        """True after the end of the run was reported; the process may take longer."""

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process, negative for a signal; None while it runs or before it started."""
        return self._process.returncode if self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self.exit_code is None

    async def start(self, config: RunConfig) -> None:
        """Start the process and its run. Raises LlamaGymError: the process or its log could not be made."""
        from llamagym_tui.runs.run_store import RunStore, unwritable

        self._config = config
        self.log_path = RunStore(Path(config.run_dir)).log_path
        try:
            make_folder(self.log_path.parent)
            with growing_file(self.log_path) as log:
                self._process = await asyncio.create_subprocess_exec(
                    *(self._command or own_python("llamagym_tui.trainer")),
                    str(self.log_path),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    limit=BUFFER_BYTES,
                    # Of its own session: a terminal that closes takes the UI, and the child still saves its work.
                    start_new_session=True,
                )
        except OSError as error:
            raise unwritable(Path(config.run_dir), error) from error
        await self.send(StartRun(protocol=PROTOCOL_VERSION, config=config))

    async def send(self, command: AnyCommand) -> None:
        """Send a command without waiting; `events` reports a trainer that is gone."""
        if self._process is None or self._process.stdin is None or not self.running:
            return
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(framed(encoded(command)))

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """The trainer's events, in order, until its process has ended.

        Raises:
            LlamaGymError: it ended, or sent what is no event, without having been stopped.
        """
        assert self._process is not None and self._process.stdout is not None, "start() comes first"
        announced_end = False
        fault: WireError | None = None
        self._reading = True
        try:
            while (payload := await read_frame_async(self._process.stdout)) is not None:
                event = decode_event(payload)
                announced_end = announced_end or isinstance(event, RunFinished | SessionFailed)
                self._finished = self._finished or isinstance(event, RunFinished)
                yield event
        except WireError as error:
            fault = error
        finally:
            self._reading = False
        await self._ended_within(GRACE_S)
        if not announced_end and not self._stopping:
            raise LlamaGymError(self._obituary(fault)) from fault

    async def stop(self, timeout_s: float) -> bool:
        """Let the trainer write its checkpoint and end; after `timeout_s` terminate it, then kill it. Returns True if
        it saved."""
        if self.running:
            self._stopping = True
            drain = None if self._reading else asyncio.create_task(self._drain())
            await self.send(Stop())
            await self._ended_within(timeout_s)
            if drain is not None:
                drain.cancel()
        return self._finished or self.exit_code == 0

    async def _ended_within(self, timeout_s: float) -> None:
        """Wait for the end of the process, and force it after `timeout_s`."""
        process = self._process
        assert process is not None
        for last_resort in (process.terminate, process.kill):
            try:
                await asyncio.wait_for(asyncio.shield(process.wait()), timeout_s)
                return
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    last_resort()
                timeout_s = GRACE_S
        await process.wait()

    async def _drain(self) -> None:
        """Read and drop events: a child blocked on a full pipe would never read the command to stop."""
        assert self._process is not None and self._process.stdout is not None
        while await self._process.stdout.read(BUFFER_BYTES):
            pass

    def _obituary(self, fault: WireError | None) -> str:
        """A sentence on the end of the process, its log, and the command that resumes."""
        assert self._config is not None
        if fault is not None:
            how = f"The trainer sent something that is no event and was ended ({fault})."
        else:
            how = f"The trainer died ({_cause(self.exit_code)})."
        resume = shlex.join(
            ["llamagym-tui", self._config.agent, "--resume", "--run-dir", self._config.run_dir]
        )
        return f"{how} Its log is {self.log_path}. Resume from the last checkpoint with: {resume}"


def own_python(module: str) -> list[str]:
    """Command that runs a module of ours; its arguments follow.

    It imports nothing from the working folder, which may be a stranger's, unless this process does.
    """
    safe = [] if {"", os.getcwd()} & set(sys.path) else ["-P"]
    return [sys.executable, *safe, "-m", module]


def _cause(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"
