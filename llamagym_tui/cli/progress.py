"""Progress on stderr: a bar where it is a terminal, else a line now and then.

A sink of a session's events; shows how far the run is on its way to its limit, and how well it plays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from llamagym_tui.protocol.events import (
    EpisodesCounted,
    Event,
    PhaseChanged,
    RolledBack,
    SettingsChanged,
    UpdateFinished,
    WarmStartFinished,
    WarmStartProgressed,
    WarningRaised,
)
from llamagym_tui.state.reduce import warm_start_text

if TYPE_CHECKING:
    from rich.progress import TaskID

LINE_EVERY_S = 10.0
"""Seconds between two lines where there is no terminal."""
RECENT = 1000
"""Episodes behind the mean return that is shown, about."""


class Progress(Protocol):
    """What shows how far it is."""

    def take(self, event: Event) -> None:
        """Show what a session told."""

    def evaluated(self, episodes: int) -> None:
        """Show how many episodes an evaluation has played."""

    def say(self, text: str) -> None:
        """Show a text."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def progress_on(
    stream: TextIO,
    *,
    episodes: int | None = None,
    minutes: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Progress towards a limit, on a stream.

    Args:
        stream: stderr.
        episodes: limit of episodes. None: no such limit.
        minutes: limit of minutes, used if there is no limit of episodes. None: no such limit.
        clock: seconds, monotonic.
    """
    if stream.isatty():
        return _Bar(stream, episodes, None if minutes is None else minutes * 60, clock)
    return _Lines(stream, episodes, clock)


class _Figures:
    """What a session told of its progress, in a few words."""

    def __init__(self) -> None:
        self.episodes = 0
        self._rate = 0.0
        self._updates = 0
        self._returns: list[float] = []

    def take(self, event: Event) -> None:
        if isinstance(event, EpisodesCounted):
            self.episodes, self._rate = event.episodes, event.episodes_per_s
            self._returns = [*self._returns, *event.returns][-RECENT:]
        elif isinstance(event, UpdateFinished):
            self._updates = event.update

    @property
    def text(self) -> str:
        mean = sum(self._returns) / len(self._returns) if self._returns else 0.0
        return f"{self.episodes:,} episodes, mean return {mean:.3f}, {self._updates} updates, {self._rate:.0f}/s"


SHOWN_PHASES = ("loading", "warm_starting", "evaluating")
"""Phases that say by themselves what is being done."""


def _step_text(event: WarmStartProgressed) -> str:
    return f"warm start: step {event.step:,} of {event.steps:,}, loss {event.loss:.3f}"


def _notice(event: Event) -> str:
    """A line for what a person should not miss; empty for the rest."""
    match event:
        case WarningRaised():
            return f"warning: {event.message}"
        case WarmStartFinished():
            return f"warm start: {warm_start_text(event)}"
        case RolledBack():
            return f"rolled back to update {event.update:,}: {event.reason}"
        case SettingsChanged():
            return "changed: " + ", ".join(f"{name} = {value}" for name, value in event.changes.items())
        case _:
            return ""


class _Lines:
    """A line every `LINE_EVERY_S`."""

    def __init__(self, stream: TextIO, episodes: int | None, clock: Callable[[], float]) -> None:
        self._stream, self._limit, self._clock = stream, episodes, clock
        self._figures = _Figures()
        self._said_at = clock()

    def take(self, event: Event) -> None:
        self._figures.take(event)
        if isinstance(event, PhaseChanged) and event.phase in SHOWN_PHASES:
            if event.phase != "evaluating" or self._is_due():
                self.say(event.detail)
        elif notice := _notice(event):
            self.say(notice)
        elif isinstance(event, WarmStartProgressed) and self._is_due():
            self.say(_step_text(event))
        elif isinstance(event, EpisodesCounted) and self._is_due():
            self.say(self._figures.text)

    def evaluated(self, episodes: int) -> None:
        if self._is_due():
            self.say(f"{episodes:,} of {self._limit or 0:,} episodes")

    def say(self, text: str) -> None:
        self._said_at = self._clock()
        print(text, file=self._stream, flush=True)

    def _is_due(self) -> bool:
        return self._clock() - self._said_at >= LINE_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None and self._figures.episodes:
            self.say(self._figures.text)


class _Bar:
    """A bar that is redrawn in place."""

    def __init__(self, stream: TextIO, episodes: int | None, seconds: float | None, clock: Callable[[], float]) -> None:
        from rich import progress
        from rich.console import Console

        self._episodes, self._seconds, self._clock = episodes, seconds, clock
        self._figures = _Figures()
        self._bar = progress.Progress(
            progress.BarColumn(bar_width=24),
            progress.TextColumn("{task.description}", markup=False),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(file=stream),
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: TaskID = self._bar.add_task("starting", total=episodes or seconds)
        self._began_at: float | None = None

    def take(self, event: Event) -> None:
        self._figures.take(event)
        if notice := _notice(event):
            self._bar.console.print(notice, markup=False, highlight=False)
        elif isinstance(event, PhaseChanged) and event.phase in SHOWN_PHASES:
            self.say(event.detail)
        elif isinstance(event, WarmStartProgressed):
            self._bar.update(self._task, description=_step_text(event), completed=event.step, total=event.steps)
        elif isinstance(event, EpisodesCounted):
            if self._began_at is None:
                self._began_at = self._clock()
            done = event.episodes if self._episodes else self._clock() - self._began_at
            limit = self._episodes or self._seconds
            self._bar.update(self._task, description=self._figures.text, completed=done, total=limit)

    def evaluated(self, episodes: int) -> None:
        self._bar.update(self._task, description=f"{episodes:,} episodes", completed=episodes)

    def say(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()
