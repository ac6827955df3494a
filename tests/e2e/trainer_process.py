"""A real trainer process, spoken to over its real pipe."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from llamagym_tui.protocol import wire
from llamagym_tui.protocol.commands import AnyCommand, StartRun
from llamagym_tui.protocol.events import PROTOCOL_VERSION, AnyEvent
from llamagym_tui.settings import RunConfig

E = TypeVar("E")
PATIENCE_S = 300.0


class TrainerProcess:
    """A trainer, and everything that it has emitted so far."""

    def __init__(self, run_dir: Path, *, code: str = "", **environment: str) -> None:
        """Start a trainer.

        Args:
            run_dir: of the run, where the log goes too.
            code: Python to run in the process before the trainer.
            environment: variables beside the present ones.
        """
        run_dir.mkdir(parents=True, exist_ok=True)
        self.run_dir, self.log_path = run_dir, run_dir / "trainer.log"
        start = ["-m", "llamagym_tui.trainer"]
        if code:
            start = [
                "-c",
                f"{code}\nimport sys\nfrom llamagym_tui.trainer.__main__ import main\nsys.exit(main(sys.argv[1:]))",
            ]
        self.process = subprocess.Popen(
            [sys.executable, *start, str(self.log_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment},
        )
        self.events: list[AnyEvent] = []
        self.fault: Exception | None = None
        self.reads = threading.Event()
        """Cleared, nothing is read from the pipe any more."""
        self.reads.set()
        self._arrived: queue.SimpleQueue[AnyEvent | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, **settings: Any) -> None:
        """Ask for a small run."""
        small: dict[str, Any] = {
            "agent": "blackjack",
            "run_dir": str(self.run_dir),
            "n_envs": 16,
            "threads": 1,
        }
        self.send(StartRun(protocol=PROTOCOL_VERSION, config=RunConfig(**{**small, **settings})))

    def send(self, command: AnyCommand) -> None:
        """Ask something."""
        assert self.process.stdin is not None
        self.process.stdin.write(wire.framed(wire.encoded(command)))

    def wait_for(self, kind: type[E], matching: Callable[[Any], bool] = lambda event: True) -> E:
        """The next event of a kind."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := deadline - time.monotonic()) > 0:
            event = self._arrived.get(timeout=left)
            if event is None:
                raise AssertionError(f"the trainer ended without {kind.__name__}; {self.seen()}")
            self.events.append(event)
            if isinstance(event, kind) and matching(event):
                return event
        raise AssertionError(f"no {kind.__name__} within {PATIENCE_S} s; {self.seen()}")

    def ends(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code; its last events are in `events`."""
        code = self.process.wait(within_s)
        while (event := self._arrived.get(timeout=PATIENCE_S)) is not None:
            self.events.append(event)
        return code

    def end_commands(self) -> None:
        """What a parent's death looks like to it."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def of(self, kind: type[E]) -> list[E]:
        """Events of a kind that have been waited for."""
        return [event for event in self.events if isinstance(event, kind)]

    def seen(self) -> str:
        """For a failing test: kinds of events, and the end of the log."""
        log = (
            self.log_path.read_text(errors="replace")[-2000:]
            if self.log_path.exists()
            else "no log"
        )
        return f"events {[type(event).__name__ for event in self.events][-20:]}; log:\n{log}"

    def __enter__(self) -> TrainerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            while (
                self.reads.wait() and (payload := wire.read_frame(self.process.stdout)) is not None
            ):  # type: ignore[arg-type]
                self._arrived.put(wire.decode_event(payload))
        except Exception as error:
            self.fault = error
        self._arrived.put(None)
