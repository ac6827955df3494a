"""Progress on stderr: a line that changes if it is a terminal, else a line now and then.

A sink of a session's events: shows how far the run is and how well it plays.
"""

import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from llamagym_tui.cli.command_line import DEBUG
from llamagym_tui.protocol import events
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.state.returns import RECENT, counted, left_text
from llamagym_tui.state.texts import (
    depth_text,
    measured_text,
    progress_text,
    warm_start_text,
)
from llamagym_tui.trainer.pipes import diverted

LINE_EVERY_S = 10.0
"""Seconds between two lines without a terminal."""


@contextmanager
def quiet_progress(
    printed: BinaryIO | None = None,
    *,
    episodes: int | None = None,
    minutes: float | None = None,
) -> Iterator["Progress"]:
    """Progress towards a limit on stderr, while what libraries print goes into `printed`, or nowhere.

    With ``--debug`` it goes to stderr too.
    """
    with (
        printed or tempfile.TemporaryFile() as log,
        diverted(log, stderr=not DEBUG.get()) as terminal,
        Progress(terminal, episodes=episodes, minutes=minutes) as progress,
    ):
        yield progress


class Progress:
    def __init__(
        self,
        stream: TextIO,
        *,
        episodes: int | None = None,
        minutes: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Progress towards a limit of episodes or of minutes, or without an end."""
        self._console = Console(file=stream)
        self._spinner = Spinner("dots", "starting")
        # What libraries print stays out of the terminal: rich would take it there.
        self._live = Live(
            self._spinner,
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._clock = clock
        self._began_at: float | None = None
        """The clock's time when play began; the work before it does not count."""
        self._printed_at = clock()
        self._episodes = episodes
        self._minutes = minutes
        self._stage = ""
        """The work before play, without its figures."""
        self._play = ""
        """The latest figures of play."""
        self._updates = 0
        self._returns: deque[float] = deque(maxlen=RECENT)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._live.stop()
            if error is None and self._play:
                self.notify(self._play)

    def notify(self, text: str) -> None:
        """Print a line that stays."""
        self._printed_at = self._clock()
        self._console.print(one_line(text), markup=False, highlight=False, soft_wrap=True)

    def show(self, text: str) -> None:
        """Show a text until the next one; without a terminal, as a line if none was printed shortly before."""
        if self._console.is_terminal:
            self._spinner.update(text=Text(one_line(text)))
        elif self._clock() - self._printed_at >= LINE_EVERY_S:
            self.notify(text)

    def stage(self, text: str) -> None:
        """Show work before play, at once unless only its figures are new."""
        stage = re.sub(r"[\d.,]+", "", text)
        if stage != self._stage and not self._console.is_terminal:
            self.notify(text)
        else:
            self.show(text)
        self._stage = stage

    def evaluated(self, episodes: int) -> None:
        """Show the number of episodes of an evaluation that have ended."""
        self.show(f"{episodes:,} of {counted(self._episodes or 0, 'episode')}")

    def take(self, event: events.Event) -> None:
        is_play = isinstance(event, events.PhaseChanged) and event.phase == "rolling_out"
        if is_play and self._began_at is None:
            self._began_at = self._clock()
        match event:
            case events.PhaseChanged(phase="loading" | "warm_starting"):
                self.stage(event.detail)
            case events.PhaseChanged() if event.detail:
                self.show(event.detail)
            case events.Progressed():
                self.show(", ".join(filter(None, (self._play, progress_text(event)))))
            case events.WarmStartProgressed(step=step, steps=steps):
                left = left_text(event.left_s)
                text = f"warm start: step {step:,} of {steps:,}, loss {event.loss:.3f}{left}"
                self.show(text)
            case events.RunStarted():
                self._updates = event.updates
                if event.trained:
                    self.notify(f"trained: {event.trained}")
            case events.UpdateFinished():
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
            case events.DepthMeasured():
                self.notify(depth_text(event))

    def _episodes_counted(self, event: events.EpisodesCounted) -> None:
        self._returns.extend(event.returns)
        mean = sum(self._returns) / max(len(self._returns), 1)
        text = counted(event.episodes, "episode")
        if self._episodes:
            text = f"{event.episodes:,} of {counted(self._episodes, 'episode')}"
        elif self._minutes and self._began_at is not None:
            minutes = (self._clock() - self._began_at) / 60
            text += f" in {minutes:.1f} of {self._minutes:g} minutes"
        text += f", mean return {mean:,.3f}, {counted(self._updates, 'update')}"
        text += f", {event.episodes_per_s:.0f}/s"
        if event.dropped:
            text += f", {event.dropped:,} dropped"
        self._play = text
        self.show(text)
