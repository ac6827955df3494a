"""Emits events: stamped here and nowhere else, then given to every sink in turn.

A sink that can take no more is dropped with one warning to the others; a sentence that one returns is a warning. The
`Tracker` is a sink: it sends figures to TensorBoard or Weights & Biases, which write into the run's folder. wandb stays
offline unless WANDB_MODE says otherwise.
"""

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from llamagym_tui.errors import LlamaGymError, described
from llamagym_tui.protocol.events import (
    EpisodesCounted,
    EvaluationFinished,
    Event,
    Progressed,
    PromptChanged,
    Refused,
    RunStarted,
    SessionFailed,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.runs.event_log import WRITTEN_AGAIN
from llamagym_tui.settings import RunConfig, flat

PROGRESS_EVERY_S = 0.5
"""Seconds between two progress events of something long."""

LEAST_S = 2.0
"""Seconds that something takes in all, as it looks by now, before its progress is reported."""
FEWEST_DONE = 0.1
"""Share of something that is done before it is said how long the rest takes: the first steps are often slower."""
RECENT_S = 5.0
"""Seconds of the past, at least, whose speed says how long the rest takes: play is faster once prompts were read."""
Sink = Callable[[Event], str | None]
log = logging.getLogger(__name__)


class EventEmitter:
    """Gives events to sinks, in the thread of the caller."""

    def __init__(
        self, sinks: Sequence[Sink], clock: Callable[[], float], *, began_s: float = 0.0
    ) -> None:
        """An emitter whose time goes on from `began_s` now; a sink that raises ``OSError`` is dropped."""
        self._sinks = list(sinks)
        self._clock = clock
        self._began_at = clock() - began_s

    def emit(self, event: Event) -> None:
        """Stamp an event and give it to every sink."""
        stamped = msgspec.structs.replace(event, at_s=self._clock() - self._began_at)
        reports = []
        for sink in list(self._sinks):
            try:
                reports.append(sink(stamped))
            except OSError as error:
                log.error("events are no longer taken by %r", sink, exc_info=error)
                self._sinks.remove(sink)
                reports.append(f"Some events can no longer be written ({error}); the run goes on.")
        for report in filter(None, reports):
            self.warn(report, unwritten=report != WRITTEN_AGAIN)

    def warn(
        self, message: str, *, refused: Refused | None = None, unwritten: bool = False
    ) -> None:
        """Emit a warning; `refused`: what was requested and is not done; `unwritten`: as the event has it."""
        self.emit(WarningRaised(message=message, refused=refused, unwritten=unwritten))

    @contextmanager
    def refusing(self, refused: Refused, *errors: type[Exception]) -> Iterator[None]:
        """Turn errors of these kinds into a warning that what was requested is not done."""
        try:
            yield
        except errors as error:
            self.warn(str(error), refused=refused)

    def throttled(self) -> Callable[[Event], None]:
        """An `emit` that drops what comes less than `PROGRESS_EVERY_S` after its last event, or after now."""
        emitted_at = self._clock()

        def emit(event: Event) -> None:
            nonlocal emitted_at
            if self._clock() - emitted_at >= PROGRESS_EVERY_S:
                emitted_at = self._clock()
                self.emit(event)

        return emit

    def progress(self, doing: str) -> Callable[[int, int], None]:
        """A function that reports how far something is that begins now: it takes what is done, and all that there is.

        What is over within `LEAST_S` is not reported.

        Args:
            doing: what it is, for people.
        """
        time_left = TimeLeft(self._clock)
        emit = self.throttled()

        def report(done: int, total: int) -> None:
            left_s = time_left.seconds(done, total)
            if 0 < done < total and time_left.whole_s(done, total) >= LEAST_S:
                emit(Progressed(doing=doing, done=done, total=total, left_s=left_s))

        return report


class TimeLeft:
    """The time that something takes from now to its end, at its recent speed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at = clock()
        self._marks = ((self._began_at, 0), (self._began_at, 0))
        """Two moments of the past, each with what was done by then."""

    def whole_s(self, done: int, total: int) -> float:
        """Seconds that all of it takes; `done` of it is not 0."""
        return (self._clock() - self._began_at) / done * total

    def seconds(self, done: int, total: int) -> float | None:
        """Seconds that the rest takes. None: too little is done to know."""
        now = self._clock()
        if now - self._marks[1][0] >= RECENT_S:
            self._marks = (self._marks[1], (now, done))
        if not done or done < FEWEST_DONE * total:
            return None
        since, before = self._marks[0]
        if done <= before:
            since, before = self._began_at, 0
        return (now - since) / (done - before) * (total - done)


def session_failed(error: Exception, log_path: Path) -> SessionFailed:
    """An error as one sentence for people, which says what to do."""
    if isinstance(error, LlamaGymError):
        return SessionFailed(message=str(error))
    # torch's own error of that name is no MemoryError.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return SessionFailed(
            message="There is not enough memory; take a smaller --model, or fewer --envs."
        )
    return SessionFailed(
        message=f"The session failed by {described(error)}; {log_path} has the traceback."
    )


PROJECT = "llamagym-tui"
"""The name of the project that wandb files runs under."""


class Tracker:
    """A sink of a session's events; raises OSError if the library fails, so that the session goes on without it."""

    def __init__(self, config: RunConfig) -> None:
        """Nothing is opened before the first figures, which say how far a resumed run had come."""
        self._config = config
        self._writer: Any = None
        self._update = 0
        self._turns = 0
        self._prompt = ""

    def take(self, event: Event) -> None:
        figures: dict[str, float] = {}
        match event:
            case RunStarted() | PromptChanged():
                self._prompt = f"v{event.prompt_version}: {event.system_prompt}"
            case EpisodesCounted():
                self._turns = event.env_steps
            case UpdateFinished():
                self._update = event.update
                figures = {
                    f"update/{name}": value
                    for name, value in msgspec.structs.asdict(event.stats).items()
                }
            case EvaluationFinished():
                kind = "greedy" if event.greedy else "sampled"
                figures[f"evaluation/{kind}_mean_return"] = event.mean_return
                figures[f"evaluation/{kind}_stderr"] = event.return_stderr
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        if not finite:
            return
        try:
            self._log(finite)
        except Exception as error:
            raise OSError(f"{self._config.track}: {error}") from error

    def close(self) -> None:
        if self._writer is None:
            return
        if self._config.track == "tensorboard":
            self._writer.close()
        else:
            self._writer.finish()

    def _log(self, figures: dict[str, float]) -> None:
        if self._writer is None:
            self._writer = self._opened()
        if self._config.track == "tensorboard":
            for name, value in figures.items():
                self._writer.add_scalar(name, value, self._update)
            self._writer.add_scalar("turns", self._turns, self._update)
            self._writer.add_text("system prompt", self._prompt, self._update)
            self._writer.flush()
        else:
            counts = {"update": self._update, "turns": self._turns}
            self._writer.log({**counts, **figures, "system prompt": self._prompt})

    def _opened(self) -> Any:
        run_dir = Path(self._config.run_dir)
        if self._config.track == "tensorboard":
            library = import_module("torch.utils.tensorboard")
            # What an earlier process logged of updates that are made again is hidden.
            return library.SummaryWriter(str(run_dir / "tensorboard"), purge_step=self._update)
        os.environ.setdefault("WANDB_MODE", "offline")
        wandb = import_module("wandb")
        return wandb.init(
            project=PROJECT, name=run_dir.name, dir=str(run_dir), config=flat(self._config)
        )
