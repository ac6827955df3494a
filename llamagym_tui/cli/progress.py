"""Progress on stderr: a bar if it is a terminal, else a line now and then.

A sink of a session's events: shows how far the run is and how well it plays.
"""

import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TextIO

from llamagym_tui.protocol import events
from llamagym_tui.protocol.literal import echo, one_line
from llamagym_tui.returns import RECENT, counted, left_text
from llamagym_tui.state.texts import measured_text, progress_text, warm_start_text

LINE_EVERY_S = 10.0
"""Seconds between two lines without a terminal."""


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
        self._play = ""
        """The latest figures of play."""
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
            elif error is None and self._play and self._play != self._shown:
                self.show(self._play)

    def notify(self, text: str) -> None:
        """Show a line that stays."""
        if self._bar:
            self._bar.console.print(one_line(text), markup=False, highlight=False)
        else:
            self.show(text)

    def show(self, text: str) -> None:
        """Show a line, until the next one where there is a bar."""
        self._shown_at = self._clock()
        self._shown = text
        if self._bar:
            self._bar.update(self._bar.task_ids[0], description=one_line(text))
        else:
            echo(text, to=self._stream)

    def update(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Move the bar; without one, show the line if none was shown shortly before."""
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
            case events.PhaseChanged() if event.detail:
                self.update(event.detail)
            case events.Progressed():
                doing = progress_text(event)
                self.update(f"{self._play}, {doing}" if self._play else doing)
            case events.WarmStartProgressed(step=step, steps=steps):
                left = left_text(event.left_s)
                text = f"warm start: step {step:,} of {steps:,}, loss {event.loss:.3f}{left}"
                self.update(text, step, steps)
            case events.RunStarted():
                self._updates = event.updates
                if event.trained:
                    self.notify(f"trained: {event.trained}")
            case events.UpdateFinished():
                self._play = self._play.replace(
                    counted(self._updates, "update"), counted(event.update, "update")
                )
                self._updates = event.update
            case events.EpisodesCounted():
                self._episodes_counted(event)
            case events.WarningRaised():
                self.notify(f"warning: {event.message}")
            case events.DemonstrationsRead():
                self.notify(f"warm start: {counted(event.episodes, 'episode')} of {event.path}")
            case events.EvaluationCancelled(why=why) if why:
                self.notify(f"warning: {why}")
            case events.WarmStartFinished():
                self.notify(f"warm start: {warm_start_text(event)}")
            case events.RolledBack():
                self.notify(f"rolled back to update {event.update:,}: {event.reason}")
            case events.SettingsMeasured():
                self.notify(f"measured: {measured_text(event)}")

    def evaluated(self, episodes: int) -> None:
        """Show how many episodes of an evaluation have ended."""
        self.update(f"{episodes:,} of {counted(self._episodes or 0, 'episode')}", episodes)

    def show_stage(self, detail: str) -> None:
        """Show a stage before play; if only its figures differ, now and then."""
        stage = re.sub(r"[\d.,]+", "", detail)
        if stage == self._stage:
            self.update(detail)
        else:
            self._stage = stage
            self.show(detail)

    def _episodes_counted(self, event: events.EpisodesCounted) -> None:
        if self._began_at is None:
            self._began_at = self._clock()
        self._returns.extend(event.returns)
        mean = sum(self._returns) / len(self._returns) if self._returns else 0.0
        text = f"{counted(event.episodes, 'episode')}, mean return {mean:,.3f}"
        text += f", {counted(self._updates, 'update')}, {event.episodes_per_s:.0f}/s"
        self._play = f"{text}, {event.dropped:,} dropped" if event.dropped else text
        done = event.episodes if self._episodes else self._clock() - self._began_at
        self.update(self._play, done, self._episodes or self._seconds)


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
