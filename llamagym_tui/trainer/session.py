"""A session: one run from loading to its end, steered by commands and told in events.

One thread does everything, in turn: obey what was asked since the last step, step all environments, and update when a
batch is full. So a command never meets a half-made step, and what an event says has already happened. It knows neither
torch nor gymnasium: its parts come from `Builders`.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import assert_never

from llamagym_tui.config import Mode, RunConfig
from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.run_store import RunStore
from llamagym_tui.trainer import reports
from llamagym_tui.trainer.announcer import Announcer, Sink
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.checkpoints import Checkpoints, Counters
from llamagym_tui.trainer.parts import load_parts
from llamagym_tui.trainer.phases import Phase, entered, is_over
from llamagym_tui.trainer.tally import EpisodeTally, Stopwatch

PROGRESS_EVERY_S = 0.5
"""Seconds between two tellings of an evaluation's progress."""

LARGEST_FIRST_RATIO = 0.05
"""Distance of an update's first ratio from 1 above which sampling and scoring are said to disagree."""

CommandQueue = queue.SimpleQueue[AnyCommand]
"""A `SimpleQueue`, because a signal handler may put into it."""
log = logging.getLogger(__name__)


class Session:
    """One run."""

    def __init__(
        self,
        config: RunConfig,
        store: RunStore,
        asked: CommandQueue,
        *,
        sinks: Sequence[Sink] = (),
        clock: Callable[[], float] = time.monotonic,
        builders: Builders | None = None,
    ) -> None:
        """A session that waits to `run`.

        Args:
            config: settings of the run.
            store: its folder, made; the session closes it.
            asked: commands, put by any thread.
            sinks: take every event, beside the folder.
            clock: seconds, monotonic.
            builders: make its parts; None: the real ones.
        """
        self.phase = Phase.LOADING
        self.error: Exception | None = None
        """What ended it, if it failed."""
        self._config, self._store, self._asked, self._clock = config, store, asked, clock
        self._waiting: deque[AnyCommand] = deque()
        self._builders = builders or Builders(config)
        self._checkpoints = Checkpoints(self._builders, store.run_dir)
        self._stopwatch = Stopwatch(clock)
        self._tell = Announcer([store.append, *sinks], clock).tell
        self._exits = contextlib.ExitStack()
        self._exits.callback(store.close)

    def run(self) -> Phase:
        """Load, play and train until something ends it; the phase in which it ended, stopped or failed."""
        try:
            self._load()
            while not is_over(self.phase):
                self._obey_all()
                self._advance()
        except Exception as error:  # whatever it is, the UI gets a sentence and the log a traceback
            self._fail(error)
        finally:
            self._close()
        return self.phase

    def _load(self) -> None:
        parts = self._parts = load_parts(self._builders, self._checkpoints, self._tell)
        self._exits.callback(parts.rollout.close)
        began = parts.began
        self._prompt, self._prompt_version = began.system_prompt, began.prompt_version
        self._stopwatch = Stopwatch(self._clock, began.elapsed_s)
        self._tally = EpisodeTally(self._stopwatch, self._clock, began.episodes, began.recent_returns)
        self._batch_began_s = began.elapsed_s
        self._tell(reports.run_started(self._config, parts, self._prompt, self._prompt_version))
        self._enter(Phase.ROLLING_OUT)

    def _advance(self) -> None:
        match self.phase:
            case Phase.ROLLING_OUT:
                self._play()
            case Phase.PAUSED:
                self._waiting.append(self._asked.get())
            case Phase.STOPPED | Phase.FAILED:
                pass
            case Phase.LOADING | Phase.UPDATING | Phase.EVALUATING:
                raise AssertionError(f"between two steps a session is not {self.phase}")
            case _:
                assert_never(self.phase)

    def _play(self) -> None:
        if self._is_limit_reached():
            self._stop()
            return
        self._tally.add(self._parts.rollout.step())
        if self._tally.is_due:
            self._count()
        if self._parts.rollout.mode == "train" and self._parts.rollout.batch_ready:
            self._update()

    def _is_limit_reached(self) -> bool:
        episodes, minutes = self._config.episodes, self._config.minutes
        return (episodes is not None and self._parts.rollout.episodes >= episodes) or (
            minutes is not None and self._stopwatch.elapsed_s >= minutes * 60
        )

    def _update(self) -> None:
        """Change the policy by the batch that is full."""
        self._count()
        rollout, ppo = self._parts.rollout, self._parts.ppo
        rollout_s = self._stopwatch.elapsed_s - self._batch_began_s
        self._enter(Phase.UPDATING)
        stats = reports.update_stats(ppo.update(rollout.take_batch()), rollout_s)
        self._batch_began_s = self._stopwatch.elapsed_s
        self._tell(events.UpdateFinished(update=ppo.updates, episodes=rollout.episodes, stats=stats))
        if stats.first_ratio > LARGEST_FIRST_RATIO:
            self._tell(events.WarningRaised(message=reports.ratio_warning(stats.first_ratio)))
        self._enter(Phase.ROLLING_OUT)
        if self._checkpoints.is_due(self._stopwatch.elapsed_s):
            self._save_or_warn()

    def _count(self) -> None:
        """Tell the episodes that ended since the last time."""
        for event in self._tally.tell(self._parts.rollout.env_steps):
            self._tell(event)

    def _obey_all(self) -> None:
        self._collect()
        while self._waiting and not is_over(self.phase):
            self._obey(self._waiting.popleft())

    def _collect(self) -> None:
        while not self._asked.empty():
            self._waiting.append(self._asked.get())

    def _obey(self, command: AnyCommand) -> None:
        match command:
            case commands.Pause():
                self._pause()
            case commands.Resume():
                if self.phase is Phase.PAUSED:
                    self._enter(Phase.ROLLING_OUT)
            case commands.SetMode(mode=mode):
                self._set_mode(mode)
            case commands.SetSystemPrompt(system_prompt=prompt):
                self._set_prompt(prompt)
            case commands.Evaluate():
                self._evaluate(command)
            case commands.SaveCheckpoint():
                self._save_or_warn()
            case commands.Stop():
                self._stop()
            case commands.StartRun():
                self._tell(
                    events.WarningRaised(message="The run has begun already; start another trainer for another.")
                )
            case _:
                assert_never(command)

    def _pause(self) -> None:
        if self.phase is Phase.ROLLING_OUT:
            self._count()
            self._enter(Phase.PAUSED)

    def _set_mode(self, mode: Mode) -> None:
        rollout = self._parts.rollout
        if mode == "train" and rollout.mode != "train":
            self._batch_began_s = self._stopwatch.elapsed_s  # playing in between was not for the batch
        rollout.mode = mode
        self._tell(events.ModeChanged(mode=mode))

    def _set_prompt(self, prompt: str) -> None:
        self._prompt, self._prompt_version = prompt, self._prompt_version + 1
        self._parts.rollout.set_system_prompt(prompt, self._prompt_version)
        self._tell(events.PromptChanged(prompt_version=self._prompt_version, system_prompt=prompt))

    def _evaluate(self, command: commands.Evaluate) -> None:
        """Play apart from the run, then go on where it was; a stop meanwhile leaves no result."""
        self._count()
        before = self.phase
        self._enter(Phase.EVALUATING, f"0 of {command.episodes} episodes")
        found = self._builders.evaluate(
            self._parts.agent,
            self._parts.policy,
            episodes=command.episodes,
            greedy=command.greedy,
            system_prompt=self._prompt,
            should_stop=self._is_asked_to_stop,
            progress=self._evaluation_progress(command.episodes),
        )
        if not self._is_asked_to_stop():
            self._tell(reports.evaluation_finished(found, greedy=command.greedy))
        self._enter(before)

    def _is_asked_to_stop(self) -> bool:
        self._collect()
        return any(isinstance(command, commands.Stop) for command in self._waiting)

    def _evaluation_progress(self, episodes: int) -> Callable[[int], None]:
        told_at = self._clock()

        def progress(done: int) -> None:
            nonlocal told_at
            if self._clock() - told_at >= PROGRESS_EVERY_S:
                told_at = self._clock()
                self._tell(events.PhaseChanged(phase="evaluating", detail=f"{done} of {episodes} episodes"))

        return progress

    def _counters(self) -> Counters:
        return Counters(
            episodes=self._parts.rollout.episodes,
            env_steps=self._parts.rollout.env_steps,
            elapsed_s=self._stopwatch.elapsed_s,
            system_prompt=self._prompt,
            prompt_version=self._prompt_version,
            recent_returns=self._tally.recent_returns,
        )

    def _save(self) -> None:
        path = self._checkpoints.save(self._parts.policy, self._parts.ppo, self._counters())
        self._tell(events.CheckpointSaved(path=str(path), update=self._parts.ppo.updates))

    def _save_or_warn(self) -> None:
        """Save; a full disk does not end a run that can go on."""
        try:
            self._save()
        except Exception as error:  # each library has its own error for a full disk
            log.exception("no checkpoint")
            self._tell(events.WarningRaised(message=f"No checkpoint was written ({error}); the run goes on."))

    def _stop(self) -> None:
        """End as asked: tell what is left, save what is new."""
        self._count()
        counters = self._counters()
        if self._checkpoints.has_news(counters):
            self._save()
        self._enter(Phase.STOPPED)
        mean, stderr, _ = self._tally.recent_mean
        self._tell(
            events.RunFinished(
                episodes=counters.episodes,
                env_steps=counters.env_steps,
                updates=self._parts.ppo.updates,
                elapsed_s=counters.elapsed_s,
                mean_return=mean,
                return_stderr=stderr,
            )
        )

    def _fail(self, error: Exception) -> None:
        log.error("the session failed", exc_info=error)
        self.error = error
        if not is_over(self.phase):
            self._enter(Phase.FAILED)
        self._tell(reports.session_failed(error, self._store.log_path))

    def _close(self) -> None:
        try:
            self._exits.close()
        except Exception:
            log.exception("not closed cleanly")

    def _enter(self, phase: Phase, detail: str = "") -> None:
        self.phase = entered(self.phase, phase)
        self._stopwatch.run(phase in (Phase.ROLLING_OUT, Phase.UPDATING))
        self._tell(events.PhaseChanged(phase=phase.value, detail=detail))
