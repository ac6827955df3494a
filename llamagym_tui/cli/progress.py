"""Progress on stderr: a bar if it is a terminal, else a line now and then.

A sink of a session's events; shows how far the run is on its way to its limit, and how well it plays.
"""

import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TextIO

from llamagym_tui.demos.training_data import fact_lines
from llamagym_tui.protocol import events
from llamagym_tui.protocol.literal import echo, one_line
from llamagym_tui.returns import RECENT, counted, left_text
from llamagym_tui.state.reduce import (
    measured_text,
    progress_text,
    warm_start_text,
)

LINE_EVERY_S = 10.0
"""Seconds between two lines where there is no terminal."""


class Progress:
    def __init__(
        self,
        stream: TextIO,
        *,
        episodes: int | None = None,
        minutes: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Progress towards a limit of episodes, else of minutes, else without an end."""
        self._stream = stream
        self._clock = clock
        self._episodes = episodes
        self._seconds = None if minutes is None else minutes * 60
        self._bar = _bar_on(stream, episodes or self._seconds) if stream.isatty() else None
        self._shown_at = clock()
        self._began_at: float | None = None
        self._updates = 0
        self._returns: deque[float] = deque(maxlen=RECENT)
        self._played: events.EpisodesCounted | None = None
        """The latest figures of play."""
        self._doing = ""
        """Progress of a longer task; empty if none is under way."""
        self._stage = ""
        """The stage before play, without its figures."""
        self._shown = ""
        """The last line that was shown."""

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with suppress(OSError):  # the terminal may be gone
            if self._bar:
                self._bar.stop()
            elif error is None and self._text and self._text != self._shown:
                self.show(self._text)

    def notify(self, text: str) -> None:
        if self._bar:
            self._bar.console.print(one_line(text), markup=False, highlight=False)
        else:
            self.show(text)

    def show(self, text: str) -> None:
        self._shown_at = self._clock()
        self._shown = text
        if self._bar:
            self._bar.update(self._bar.task_ids[0], description=one_line(text))
        else:
            echo(text, to=self._stream)

    def update(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Show how far it is; without a bar, only if nothing was shown shortly before."""
        if self._bar:
            self._bar.update(
                self._bar.task_ids[0], description=one_line(text), completed=done, total=total
            )
        elif self._clock() - self._shown_at >= LINE_EVERY_S:
            self.show(text)

    def take(self, event: events.Event) -> None:
        match event:
            case events.PhaseChanged(phase="loading" | "warm_starting"):
                self.show_stage(event.detail)
            case events.PhaseChanged():
                self._doing = ""
                if event.phase == "evaluating" and event.detail:
                    self.update(f"evaluating: {event.detail}")
                elif event.phase == "rolling_out" and event.detail:
                    self.update(event.detail)
            case events.Progressed():
                self._doing = progress_text(event)
                self.update(", ".join(filter(None, [self._text, self._doing])))
            case events.WarmStartProgressed(step=step, steps=steps):
                left = left_text(event.left_s)
                self.update(
                    f"warm start: step {step:,} of {steps:,}, loss {event.loss:.3f}{left}",
                    step,
                    steps,
                )
            case events.RunStarted():
                self._updates = event.updates
                if event.trained:
                    self.notify(f"trained: {event.trained}")
            case events.UpdateFinished():
                self._updates = event.update
                self._doing = ""
            case events.EpisodesCounted():
                self._show_play(event)
            case events.WarningRaised():
                self.notify(f"warning: {event.message}")
            case events.DemonstrationsRead():
                facts = [f"{name} {text}" for name, text in fact_lines(event).items()]
                self.notify(f"warm start: {'; '.join(facts)}")
            case events.EvaluationCancelled(why=why) if why:
                self.notify(f"warning: {why}")
            case events.WarmStartFinished():
                self.notify(f"warm start: {warm_start_text(event)}")
            case events.RolledBack():
                self.notify(f"rolled back to update {event.update:,}: {event.reason}")
            case events.SettingsChanged():
                changes = [f"{name} = {value}" for name, value in event.changes.items()]
                self.notify(f"changed: {', '.join(changes)}")
            case events.SettingsMeasured():
                self.notify(f"measured: {measured_text(event)}")

    def evaluated(self, episodes: int) -> None:
        self.update(f"{episodes:,} of {counted(self._episodes or 0, 'episode')}", episodes)

    def show_stage(self, detail: str) -> None:
        """Show what is done before the play; if only its figures are others, now and then."""
        stage = re.sub(r"[\d.,]+", "", detail)
        if stage == self._stage:
            self.update(detail)
        else:
            self._stage = stage
            self.show(detail)

    @property
    def _text(self) -> str:
        """The latest figures of play, with the updates by now; empty before the first."""
        play = self._played
        if play is None:
            return ""
        mean = sum(self._returns) / len(self._returns) if self._returns else 0.0
        text = f"{counted(play.episodes, 'episode')}, mean return {mean:,.3f}"
        text += f", {counted(self._updates, 'update')}, {play.episodes_per_s:.0f}/s"
        return f"{text}, {play.dropped:,} dropped" if play.dropped else text

    def _show_play(self, event: events.EpisodesCounted) -> None:
        if self._began_at is None:
            self._began_at = self._clock()
        self._returns.extend(event.returns)
        self._played = event
        done = event.episodes if self._episodes else self._clock() - self._began_at
        shown = ", ".join(filter(None, [self._text, self._doing]))
        self.update(shown, done, self._episodes or self._seconds)


def _bar_on(stream: TextIO, total: float | None) -> Any:
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.BarColumn(bar_width=24),
        progress.TextColumn("{task.description}", markup=False),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(file=stream),
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task("starting", total=total)
    return bar
