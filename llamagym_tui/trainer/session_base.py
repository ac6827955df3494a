"""The parts of a session and where it stands: all that its updates, changes of settings and evaluations work with.

Also its commands: those that were requested and not handled yet, in the order in which they came.
"""

import contextlib
import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from llamagym_tui.engine.learning.earlier_turns import Played
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import LlamaGymError, RunStoreError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol import commands, events
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.settings import RunConfig, changes_since
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.checkpoints import RETRY_S, Checkpoints, Counters
from llamagym_tui.trainer.collapse import CollapseMonitor
from llamagym_tui.trainer.event_sinks import EventEmitter, Sink, Tracker
from llamagym_tui.trainer.probes.map_policy import PolicyMapper
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounter, Stopwatch
from llamagym_tui.trainer.rollout.rollout import Rollout
from llamagym_tui.trainer.rollout.showing import Showing

CommandQueue = queue.SimpleQueue[AnyCommand]
"""A `SimpleQueue`, because a signal handler may put into it."""


class Inbox:
    """Reads, in the session's own thread, a queue that any thread may put into."""

    def __init__(self, command_queue: CommandQueue) -> None:
        self._queue = command_queue
        self._waiting: deque[AnyCommand] = deque()

    def take(self, *kinds: type[AnyCommand]) -> AnyCommand | None:
        """The oldest command or, ahead of others, the oldest of these kinds; None if there is none."""
        self._collect()
        found = next(
            (command for command in self._waiting if not kinds or isinstance(command, kinds)), None
        )
        if found is not None:
            self._waiting.remove(found)
        return found

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until there is a command, or for so long."""
        if not self._waiting:
            with contextlib.suppress(queue.Empty):
                self._waiting.append(self._queue.get(timeout=timeout_s))

    def holds(self, *kinds: type[AnyCommand]) -> bool:
        """True if a command of these kinds waits; without kinds, if any does."""
        self._collect()
        return any(not kinds or isinstance(command, kinds) for command in self._waiting)

    def _collect(self) -> None:
        while not self._queue.empty():
            self._waiting.append(self._queue.get())


_AFTER: dict[events.Phase, set[events.Phase]] = {
    "loading": {"rolling_out", "stopped", "failed"},
    "warm_starting": {"rolling_out", "paused", "failed"},
    "rolling_out": {"updating", "paused", "evaluating", "warm_starting", "stopped", "failed"},
    "updating": {"rolling_out", "failed"},
    "paused": {"rolling_out", "evaluating", "warm_starting", "stopped", "failed"},
    "evaluating": {"rolling_out", "paused", "failed"},
    "stopped": set(),  # by a command or a limit
    "failed": set(),  # by an error
}
"""Phases that may follow each phase."""
log = logging.getLogger(__name__)


class SessionBase:
    agent: AgentBase
    policy: Policy
    learner: PPO
    rollout: Rollout
    checkpoints: Checkpoints
    stopwatch: Stopwatch
    """Counts the seconds of playing and training."""
    policy_map: PolicyMapper
    _episode_counter: EpisodeCounter

    def __init__(
        self,
        config: RunConfig,
        store: RunStore,
        command_queue: CommandQueue,
        *,
        sinks: Sequence[Sink] = (),
        clock: Callable[[], float] = time.monotonic,
        builders: Builders | None = None,
        turn_s: float = 0.0,
        evaluates_end: bool = False,
    ) -> None:
        """A session that waits to `run`, with a run's folder, which receives every event and is closed.

        Args:
            sinks: receive every event too.
            clock: seconds, monotonic.
            turn_s: seconds between two turns that are shown to a person at first.
            evaluates_end: evaluate the policy that it ends with, unless it is stopped before its limit.
        """
        self.phase: events.Phase = "loading"
        self.config = config
        """The settings that hold now."""
        self.given = config
        """The settings without what was changed live."""
        self.inbox = Inbox(command_queue)
        self.clock = clock
        self.builders = builders or Builders(config)
        self.monitor = CollapseMonitor()
        self.batch_began_s = 0.0
        """`stopwatch.elapsed_s` at the beginning of the batch."""
        self.is_first_batch = True
        self.first_episodes: list[Played] = []
        """Episodes that show how many earlier turns help."""
        self.awaits_warm_start = False
        """The warm start that the run begins with is still to be made."""
        self._store = store
        self._is_loaded = False
        self._evaluates_end = evaluates_end and config.final_episodes > 0
        taken_by = [store.append, *sinks]
        self._exits = contextlib.ExitStack()
        if config.track is not None:
            tracker = Tracker(config)
            taken_by.append(tracker.take)
            self._exits.callback(tracker.close)
        self.emitter = EventEmitter(taken_by, clock, began_s=store.last_at_s)
        self.emit = self.emitter.emit
        self.showing = Showing(self.emit, clock)
        self.showing.turn_s = turn_s
        self._exits.callback(store.close)

    @property
    def log_path(self) -> Path:
        return self._store.log_path

    def keep(self, given: RunConfig) -> None:
        """Take these as the settings without live changes, and write them into the run's folder."""
        self.given = given
        with contextlib.suppress(OSError):  # then a resumed run finds it again
            self._store.write_config(given)

    def begin_batch(self) -> None:
        self.batch_began_s = self.stopwatch.elapsed_s

    def restart(self) -> None:
        """Drop the batch and the episodes under way: all episodes of a batch are played by one distribution."""
        self.rollout.restart()
        self.begin_batch()

    def report_episodes(self) -> None:
        """Emit the episodes that ended since the last report."""
        dropped = self.rollout.failures.dropped
        for event in self._episode_counter.take_events(self.rollout.env_steps, dropped):
            self.emit(event)

    # Commands

    def handle(self, command: AnyCommand) -> None:
        """Carry out a command."""
        raise NotImplementedError

    def should_end_update(self) -> bool:
        """True if the run should stop; a pause waits for the end of the update.

        Commands that change nothing of the run are handled at once, and what is shown at a pace goes on.
        """
        self.showing.go_on()
        while command := self.inbox.take(
            commands.Watch,
            commands.SetPace,
            commands.DrawStates,
            commands.ProbeActions,
            commands.TakeWheel,
            commands.LetGo,
        ):
            self.handle(command)
        return self.inbox.holds(commands.Stop)

    def should_end_evaluation(self) -> bool:
        # A person at the table waits for the answer.
        while command := self.inbox.take(commands.ProbeActions):
            self.handle(command)
        return self.inbox.holds(commands.Stop, commands.CancelEvaluation, commands.CancelWarmStart)

    def should_end_warm_start(self) -> bool:
        return self.inbox.holds(commands.Stop, commands.CancelWarmStart)

    def opponent_begins_anew(self) -> None:
        """Earlier selves are those of the policy that goes on."""
        if self.rollout.opponent is not None:
            self.rollout.opponent.begin_anew()

    # Checkpoints

    def _counters(self) -> Counters:
        rollout = self.rollout
        return Counters(
            seed=self.config.seed,
            episodes=rollout.episodes,
            env_steps=rollout.env_steps,
            dropped=rollout.failures.dropped,
            elapsed_s=self.stopwatch.elapsed_s,
            system_prompt=rollout.system_prompt,
            prompt_version=rollout.prompt_version,
            changed=changes_since(self.given, self.config),
            generation=self.config.generation,
            seen=self.monitor,
            started=rollout.started,
            opponent=None if rollout.opponent is None else rollout.opponent.state(),
            awaits_warm_start=self.awaits_warm_start,
        )

    @property
    def has_news(self) -> bool:
        """True if anything was played or changed since the last checkpoint."""
        return self.checkpoints.has_news(self._counters())

    def save(self) -> None:
        """Write a checkpoint. Raises RunStoreError: it cannot be written."""
        self.checkpoints.save(self._counters())
        self.emit(events.CheckpointSaved(update=self.learner.updates))

    def save_or_warn(
        self,
        *,
        requested: bool = True,
        then: str = f"The run goes on, and tries again every {RETRY_S:.0f} s.",
    ) -> None:
        """Write a checkpoint; a full disk does not end a run that can go on.

        Where it was `requested`, every failure is warned of, and not only the first one; `then` is what follows.
        """
        was_failing = self.checkpoints.is_failing
        self.report_episodes()  # a resumed run counts from here
        try:
            self.save()
        except RunStoreError as error:
            log.exception("no checkpoint")
            if requested or not was_failing:
                self.emitter.warn(f"{error} {then}", refused="checkpoint", unwritten=True)
        else:
            if was_failing:
                self.emitter.warn("A checkpoint could be written again.")

    def enter(self, phase: events.Phase, detail: str = "") -> events.Phase:
        """Enter a phase; the one before it."""
        before = self.phase
        if phase not in _AFTER[before]:
            raise LlamaGymError(
                f"A session cannot go from {before} to {phase}; this is a fault of the program: report it."
            )
        self.phase = phase
        if self._is_loaded:
            self.stopwatch.run(phase in ("rolling_out", "updating"))
        self.emit(events.PhaseChanged(phase=phase, detail=detail))
        return before


def is_over(phase: events.Phase) -> bool:
    """True if nothing can follow a phase."""
    return not _AFTER[phase]
