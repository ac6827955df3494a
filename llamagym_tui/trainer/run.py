"""The run inside a session: what plays and learns, what is counted of it, and every way in which it is changed.

Each method is one thing that happens between two steps and tells it in events; when it happens, and in which phase,
is the session's matter. What was changed live stands in the checkpoints, and a resumed run takes it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from llamagym_tui.config import (
    Mode,
    RunConfig,
    Value,
    begins_new_batch,
    changed,
    changes_since,
    changes_to_take_back,
    spelt_out,
)
from llamagym_tui.errors import ActionParseError, ConfigError, EnvError, RunStoreError, UsageError
from llamagym_tui.protocol import commands, events
from llamagym_tui.trainer import event_builders
from llamagym_tui.trainer.checkpoints import Checkpoints, Counters
from llamagym_tui.trainer.collapse import CollapseMonitor, Verdict
from llamagym_tui.trainer.event_sinks import Sink, spaced
from llamagym_tui.trainer.parts import Parts
from llamagym_tui.trainer.probes.action_probabilities import Weighing
from llamagym_tui.trainer.probes.inspect_reply import Inspecting
from llamagym_tui.trainer.probes.policy_map import Mapping as PolicyMapping
from llamagym_tui.trainer.rollout.episode_counts import EpisodeTally, Stopwatch

LARGEST_FIRST_RATIO = 0.05
"""Distance of an update's first ratio from 1 above which sampling and scoring are said to disagree."""
MOST_ROLL_BACKS = 3
"""Times that a session rolls back by itself: if that does not help, the settings have to change."""
REMIND_AFTER = 20
"""Updates after which the same finding is told again."""
log = logging.getLogger(__name__)


class Run:
    """A run that is loaded."""

    def __init__(
        self, config: RunConfig, parts: Parts, checkpoints: Checkpoints, tell: Sink, clock: Callable[[], float]
    ) -> None:
        """A run as its checkpoint left it, or at its beginning.

        Args:
            config: settings as they were given; changes of an earlier session are made again.
            parts: what plays and learns.
            checkpoints: of this run.
            tell: takes events.
            clock: seconds, monotonic.
        """
        began = parts.began
        self.parts = parts
        self.config = self._given = config
        self.prompt, self.prompt_version = began.system_prompt, began.prompt_version
        self.stopwatch = Stopwatch(clock, began.elapsed_s)
        self.tally = EpisodeTally(self.stopwatch, clock, began.episodes, began.recent_returns)
        self._checkpoints, self._tell, self._clock = checkpoints, tell, clock
        self._batch_began_s = began.elapsed_s
        self._monitor = CollapseMonitor()
        self._weighing = Weighing(parts.agent, parts.policy)
        self.mapping = PolicyMapping(parts.agent, parts.policy, tell, clock)
        self._inspecting = Inspecting(parts.policy, parts.ppo, parts.rollout)
        self._verdict = Verdict()
        self._told: dict[tuple[str, tuple[str, ...]], int] = {}
        """Update at which each finding was told last."""
        self._roll_backs = 0
        self._go_by(changed(config, changes_to_take_back(config, began.changed)))
        if began.generation == self.config.generation:
            self._monitor.recall(began.best)

    @property
    def is_limit_reached(self) -> bool:
        """Whether the run has played, or lasted, as long as it was to."""
        episodes, minutes = self.config.episodes, self.config.minutes
        return (episodes is not None and self.parts.rollout.episodes >= episodes) or (
            minutes is not None and self.stopwatch.elapsed_s >= minutes * 60
        )

    @property
    def is_batch_full(self) -> bool:
        """Whether it is time for an update."""
        return self.parts.rollout.mode == "train" and bool(self.parts.rollout.batch_ready)

    def step(self) -> bool:
        """One turn in every environment; whether the watched one made any."""
        rollout = self.parts.rollout
        turns = rollout.spectator.turns
        self.tally.add(rollout.step())
        if rollout.last_reply:
            self._monitor.hear(rollout.last_reply)
        if self.tally.is_due:
            self.count()
        return bool(rollout.spectator.turns > turns)

    def weigh(self) -> None:
        """Tell how probable each action is where the watched episode stands."""
        rollout = self.parts.rollout
        if (where := rollout.standpoint()) is not None and (weighed := self._weighing.weigh(where)) is not None:
            rollout.spectator.tell(where.env, weighed)

    def weigh_again(self) -> None:
        """Tell what the update has made of the actions that were weighed last."""
        if (weighed := self._weighing.weigh_again()) is not None:
            self._tell(weighed)

    def map_policy(self, should_stop: Callable[[], bool], *, at_once: bool = False) -> None:
        """Tell the policy map, if it is time for one, or at once."""
        self.mapping.map(
            self.prompt, self.prompt_version, self.parts.ppo.updates, should_stop=should_stop, at_once=at_once
        )

    def weigh_conversation(self, question: commands.WeighActions) -> None:
        """Tell how probable each action is after a conversation that somebody else plays."""
        self._tell(self._weighing.weigh_conversation(question))

    def watch(self, command: commands.Watch | commands.WatchNext) -> None:
        """Tell another conversation."""
        spectator = self.parts.rollout.spectator
        if isinstance(command, commands.Watch):
            spectator.watch(command.env)
        elif not spectator.watch_next(command.kind):
            self.warn("No episode has ended yet; ask again a little later.")
        self.parts.rollout.keep_wheel_in_view()

    @property
    def is_driven(self) -> bool:
        """Whether a person has the wheel of the watched environment."""
        return self.parts.rollout.wheel.env is not None

    @property
    def awaits_person(self) -> bool:
        """Whether a step stands still until the person at the wheel has chosen."""
        return bool(self.parts.rollout.awaits_person)

    def take_wheel(self) -> bool:
        """Let a person act in the watched environment; False, and a warning, if that cannot be."""
        try:
            self.parts.rollout.take_wheel()
        except (UsageError, EnvError) as error:
            self.warn(str(error), refused="wheel")
            return False
        return True

    def act(self, command: commands.Act) -> None:
        """Take the action of the person at the wheel, or warn."""
        try:
            self.parts.rollout.act(command.episode, command.turn, command.action, command.reasoning)
        except (UsageError, ActionParseError) as error:
            self.warn(str(error), refused="wheel")

    def let_go(self) -> None:
        """Let the agent act again."""
        self.parts.rollout.let_go()

    def inspect(self, command: commands.InspectTurn) -> None:
        """Tell a reply token by token."""
        self._tell(self._inspecting.inspect(command.episode, command.turn))

    def count(self) -> None:
        """Tell the episodes that ended since the last time."""
        for event in self.tally.tell(self.parts.rollout.env_steps):
            self._tell(event)

    def update(self, should_stop: Callable[[], bool]) -> None:
        """Change the policy by the batch that is full.

        Args:
            should_stop: asked between two optimizer steps; the update ends early by it, with the steps made.
        """
        rollout, ppo = self.parts.rollout, self.parts.ppo
        rollout_s = self.stopwatch.elapsed_s - self._batch_began_s
        figures = ppo.update(rollout.take_batch(), should_stop=should_stop, progress=self._update_progress())
        stats = event_builders.update_stats(figures, rollout_s)
        self._begin_batch()
        self._tell(events.UpdateFinished(update=ppo.updates, episodes=rollout.episodes, stats=stats))
        if stats.first_ratio > LARGEST_FIRST_RATIO:
            self.warn(event_builders.ratio_warning(stats.first_ratio))
        self._verdict = self._monitor.judge(stats)

    def look_after(self) -> None:
        """What an update asks for: a word of warning, a roll back, a checkpoint."""
        if self._verdict.level == "collapsed" and self._rolls_back_by_itself:
            self._roll_backs += 1
            if self.roll_back(event_builders.verdict_text(self._verdict)):
                return
        self._tell_verdict()
        self._keep_good(good=self._monitor.is_good)
        if self._checkpoints.is_due(self.stopwatch.elapsed_s):
            self.save_or_warn()

    def set_mode(self, mode: Mode) -> None:
        """Train, or only play, from now on."""
        rollout = self.parts.rollout
        if mode == "train" and rollout.mode != "train":
            self._begin_batch()  # playing in between was not for the batch
        rollout.mode = mode
        self._tell(events.ModeChanged(mode=mode))

    def set_prompt(self, prompt: str) -> None:
        """Use another system prompt from the next reset on."""
        self.prompt, self.prompt_version = prompt, self.prompt_version + 1
        self.parts.rollout.set_system_prompt(prompt, self.prompt_version)
        self._monitor.forget()
        self._tell(events.PromptChanged(prompt_version=self.prompt_version, system_prompt=prompt))

    def change(self, asked: Mapping[str, Value]) -> None:
        """Go by other settings from now on, all that were asked for or none; a checkpoint comes first."""
        changes = spelt_out(asked)
        try:
            config = changed(self.config, changes)
            self._check(config)
        except ConfigError as error:
            self.warn(f"Nothing was changed: {error}", refused="settings")
            return
        self.count()  # what was played by the settings before
        if self._checkpoints.has_news(self.counters()):
            self.save_or_warn()
        self._go_by(config)
        self._tell_changed(changes)

    def tell_changes(self) -> None:
        """Tell the settings that a resumed run has taken back, if there are any."""
        if taken_back := changes_since(self._given, self.config):
            self._tell_changed({name: change.after for name, change in taken_back.items()})

    def _tell_changed(self, changes: dict[str, Value]) -> None:
        updates, episodes = self.parts.ppo.updates, self.parts.rollout.episodes
        self._tell(events.SettingsChanged(changes=changes, update=updates, episodes=episodes))

    def _check(self, config: RunConfig) -> None:
        """Refuse what these parts cannot do.

        Raises:
            ConfigError: it needs what the run was begun without.
        """
        if self.parts.ppo.reference is None and (config.ppo.kl_coef or config.ppo.kl_coef_final):
            raise ConfigError("The run began without a KL to the reference, so there is none to weigh.")
        if config.generation.policy == "score" and not self.parts.policy.trie:
            raise ConfigError("The score policy chooses among replies, but this agent names no discrete actions.")

    def _go_by(self, config: RunConfig) -> None:
        """Put settings into effect."""
        before, self.config = self.config, config
        policy, ppo, rollout = self.parts.policy, self.parts.ppo, self.parts.rollout
        if begins_new_batch(before, config):
            rollout.restart()
            self._begin_batch()
        if before.generation != config.generation:
            policy.generation = config.generation
            self._monitor.forget()
        if before.ppo != config.ppo:
            ppo.config = config.ppo
            rollout.batch_turns = config.ppo.batch_size
        if before.n_envs != config.n_envs:
            rollout.resize(config.n_envs)

    def roll_back(self, reason: str) -> bool:
        """Go on from the last good checkpoint; False, and a warning, if there is none."""
        try:
            path = self._checkpoints.roll_back(self.parts.policy, self.parts.ppo)
        except RunStoreError as error:
            self.warn(str(error), refused="roll_back")
            return False
        self.parts.rollout.restart()
        self._begin_batch()
        self._monitor.rolled_back()
        self._told.clear()
        self._tell(events.RolledBack(update=self.parts.ppo.updates, path=str(path), reason=reason))
        self.save_or_warn()  # or a resumed run would have the weights that were left
        return True

    def _keep_good(self, *, good: bool) -> None:
        try:
            self._checkpoints.judged(good=good)
        except OSError as error:
            self.warn(f"The last good checkpoint is an older one ({error}); the run goes on.")

    @property
    def _rolls_back_by_itself(self) -> bool:
        return self.config.on_collapse == "rollback" and self._roll_backs < MOST_ROLL_BACKS

    def _tell_verdict(self) -> None:
        """Warn of what the monitor found, unless it was told lately."""
        now, finding = self.parts.ppo.updates, (self._verdict.level, self._verdict.signs)
        if self._verdict.level != "quiet" and now - self._told.get(finding, -REMIND_AFTER) >= REMIND_AFTER:
            self._told[finding] = now
            advice = f" {event_builders.COLLAPSE_ADVICE}" if self._verdict.level == "collapsed" else ""
            self.warn(event_builders.verdict_text(self._verdict) + advice)

    def taught(self) -> None:
        """Go on from the policy that a warm start has made: the batch under way is dropped, a checkpoint written."""
        self.parts.rollout.restart()
        self._begin_batch()
        self._monitor.forget()
        self.mapping.forget()
        self.save_or_warn()
        self._keep_good(good=True)

    def counters(self) -> Counters:
        """Where the run stands."""
        return Counters(
            episodes=self.parts.rollout.episodes,
            env_steps=self.parts.rollout.env_steps,
            elapsed_s=self.stopwatch.elapsed_s,
            system_prompt=self.prompt,
            prompt_version=self.prompt_version,
            recent_returns=self.tally.recent_returns,
            changed=changes_since(self._given, self.config),
            best=self._monitor.best,
            generation=self.config.generation,
        )

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            OSError: it cannot be written; the one before still stands.
        """
        path = self._checkpoints.save(self.parts.policy, self.parts.ppo, self.counters())
        self._tell(events.CheckpointSaved(path=str(path), update=self.parts.ppo.updates))

    def save_or_warn(self) -> None:
        """Save; a full disk does not end a run that can go on."""
        try:
            self.save()
        except Exception as error:  # each library has its own error for a full disk
            log.exception("no checkpoint")
            self.warn(f"No checkpoint was written ({error}); the run goes on.", refused="checkpoint")

    def finish(self) -> events.RunFinished:
        """Save what is new; how the run ended.

        Raises:
            OSError: the checkpoint cannot be written.
        """
        self.parts.rollout.tell_corrections()
        counters = self.counters()
        if self._checkpoints.has_news(counters):
            self.save()
        mean, stderr, _ = self.tally.recent_mean
        return events.RunFinished(
            episodes=counters.episodes,
            env_steps=counters.env_steps,
            updates=self.parts.ppo.updates,
            elapsed_s=counters.elapsed_s,
            mean_return=mean,
            return_stderr=stderr,
        )

    def warn(self, message: str, *, refused: events.Refused | None = None) -> None:
        """Tell a warning.

        Args:
            message: a sentence.
            refused: what was asked for and is not done.
        """
        self._tell(events.WarningRaised(message=message, refused=refused))

    def _begin_batch(self) -> None:
        self._batch_began_s = self.stopwatch.elapsed_s

    def _update_progress(self) -> Callable[[int, int], None]:
        tell = spaced(self._tell, self._clock)

        def progress(epoch: int, epochs: int) -> None:
            tell(events.PhaseChanged(phase="updating", detail=f"epoch {epoch} of {epochs}"))

        return progress
