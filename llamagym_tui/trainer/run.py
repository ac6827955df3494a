"""The run inside a session: its parts, what is counted of it, and every change that touches several of them.

Each method is one thing that happens between two steps; when, and in which phase, is up to the session.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.demos.training_data import TrainingData
from llamagym_tui.engine.learning.earlier_turns import Played, episodes_of, turns_that_help
from llamagym_tui.engine.learning.measured_settings import (
    SMALLEST_BATCH,
    Measured,
    measured_novelty,
    measured_settings,
)
from llamagym_tui.engine.learning.ppo import PPO, unused_settings
from llamagym_tui.engine.model.loading import LoadedModel
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.errors import ConfigError, EnvError, RunStoreError, StoodStill
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.observed import described_return
from llamagym_tui.protocol import events
from llamagym_tui.protocol.events import PhaseChanged, RunStarted
from llamagym_tui.settings import (
    Mode,
    RunConfig,
    Value,
    changed,
    changes_since,
    changes_to_restore,
    turns_kept,
    with_final_values,
    with_measured,
)
from llamagym_tui.setup import catalog
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.checkpoints import RETRY_S, Checkpoints, Counters
from llamagym_tui.trainer.collapse import CollapseMonitor, Level, Verdict
from llamagym_tui.trainer.event_sinks import EventEmitter, TimeLeft
from llamagym_tui.trainer.probes.action_probabilities import ActionProbes
from llamagym_tui.trainer.probes.inspect_reply import ReplyInspector
from llamagym_tui.trainer.probes.map_policy import PolicyMapper
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounter, Stopwatch
from llamagym_tui.trainer.rollout.rollout import Rollout

LARGEST_FIRST_RATIO = 0.05
"""Distance of an update's first ratio from 1 above which sampling and scoring disagree."""
MOST_ROLL_BACKS = 3
"""Times that a run rolls back by itself: if that does not help, the settings have to change."""
FIRST_BATCH_S = 45.0
"""Seconds of play after which a run's first batch ends, if its size is not given."""
FIRST_UPDATES = 5
"""Updates after which prompts stay without earlier turns, if no episodes have shown whether these help."""
REMIND_AFTER = 20
"""Updates after which the same finding is reported again."""
COLLAPSE_ADVICE = "Roll back, and lower ppo.lr or raise ppo.kl_coef."
HISTORY_WARNING = (
    "The model's chat template rewrites earlier turns, so every turn is computed again from its beginning: "
    "long episodes take much longer than with other models."
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """Agent, model, policy, learner and environments."""

    agent: AgentBase
    loaded: LoadedModel
    policy: Policy
    learner: PPO
    rollout: Rollout
    threads: int
    """The number of threads that compute."""
    start: Counters
    """Where the run stood when this session began."""


def load_parts(builders: Builders, checkpoints: Checkpoints, emitter: EventEmitter) -> Parts:
    """Load everything, and report the progress."""
    config = builders.config
    emitter.emit(PhaseChanged(phase="loading", detail="loading the model"))
    agent = builders.agent()
    builders.fetch_model(lambda words: emitter.emit(PhaseChanged(phase="loading", detail=words)))
    builders.require_memory()
    loaded = builders.model()
    if loaded.warning:
        emitter.warn(loaded.warning)
    policy = builders.policy(agent, loaded)
    if config.resume:
        builders.checkpoint_files().load_start(Path(config.run_dir), policy)
    learner = builders.learner(policy)
    if config.resume:
        start = checkpoints.restore(policy, learner)
    else:
        start = Counters(seed=config.seed, system_prompt=agent.get_system_prompt())
    if checkpoints.note:
        emitter.warn(checkpoints.note)
    start = start.with_prompt(config.system_prompt)
    learner.use_prompt(start.system_prompt)
    if start.seed != config.seed:  # other random numbers and episodes from here on
        policy.generator.manual_seed(config.seed)
        learner.reseed(config.seed)
    emitter.emit(PhaseChanged(phase="loading", detail="making the environments"))
    rollout = builders.rollout(agent, policy, seed=config.seed, emit=emitter.emit)
    rollout.mode = config.mode
    rollout.set_counters(
        started=start.started,
        episodes=start.episodes,
        env_steps=start.env_steps,
        dropped=start.dropped,
    )
    rollout.set_system_prompt(start.system_prompt, start.prompt_version)
    return Parts(
        agent=agent,
        loaded=loaded,
        policy=policy,
        learner=learner,
        rollout=rollout,
        threads=builders.threads(policy, loaded),
        start=start,
    )


class Run:
    def __init__(
        self,
        config: RunConfig,
        parts: Parts,
        checkpoints: Checkpoints,
        emitter: EventEmitter,
        clock: Callable[[], float],
    ) -> None:
        """A run as its checkpoint left it, or at its beginning.

        `config` has the settings as they were given; live changes of an earlier session are made again.
        """
        start = parts.start
        self.config = config
        """The settings that hold now."""
        self.given = config
        """The settings without what was changed live."""
        self.agent = parts.agent
        self.policy = parts.policy
        self.learner = parts.learner
        self.rollout = parts.rollout
        self.stopwatch = Stopwatch(clock, start.elapsed_s)
        self.action_probes = ActionProbes(parts.agent, parts.policy)
        self.policy_map = PolicyMapper(
            parts.agent, parts.policy, emitter.emit, clock, emitter.progress
        )
        self.inspector = ReplyInspector(parts.policy, parts.learner, parts.rollout)
        describe = partial(described_return, parts.agent)
        self._episode_counter = EpisodeCounter(self.stopwatch, clock, start.episodes, describe)
        self._episode_counter.begin_again(parts.rollout.mode, parts.rollout.prompt_version)
        self._checkpoints = checkpoints
        self._clock = clock
        self._emitter = emitter
        self._emit = emitter.emit
        self._first_episodes: list[Played] = []
        """Episodes by which it is found how many earlier turns help."""
        self._monitor = CollapseMonitor()
        self._warned_at: dict[Level, int] = {}
        """Update at which each kind of finding was reported last."""
        self._roll_backs = start.roll_backs
        self.awaits_warm_start = start.awaits_warm_start
        """The warm start that the run begins with is still to be made."""
        self._is_first_batch = self.learner.updates == 0
        restored = changed(config, changes_to_restore(config, start.changed))
        if restored.n_envs != config.n_envs:
            self.rollout.resize(restored.n_envs)
        self._apply(restored)
        self._batch_began_s = start.elapsed_s
        if start.generation == self.config.generation:
            self._monitor = start.seen or self._monitor

    def take_up(self, start: Counters) -> None:
        """Take up the earlier selves of the policy; the batch that was under way is played anew.

        Raises:
            RunStoreError: the opponent cannot be what it was.
        """
        if start.opponent is not None and self.rollout.opponent is not None:
            try:
                self.rollout.opponent.restore(start.opponent)
            except ValueError as error:
                raise RunStoreError(
                    f"The earlier selves in the checkpoint of {self.config.run_dir!r} cannot be read ({error}): begin "
                    f"another run with its weights, by --model {self.config.run_dir}."
                ) from error

    @property
    def limit_reached(self) -> str:
        """The limit that the run has reached, in words; empty if it has reached none."""
        limits = {
            "s": (self.stopwatch.elapsed_s, self.config.minutes and self.config.minutes * 60),
            "episodes": (self.rollout.episodes, self.config.episodes),
        }
        for unit, (played, limit) in limits.items():
            if limit is not None and played >= limit:
                return f"{played:,.0f} of {limit:,.0f} {unit}"
        return ""

    def step(self) -> bool:
        """One turn in every environment; whether the watched one made any."""
        rollout = self.rollout
        turns = rollout.spectator.turns
        self._episode_counter.add(rollout.step())
        self._end_slow_first_batch()
        if self._episode_counter.is_due:
            self.report_episodes()
        return rollout.spectator.turns > turns

    def _end_slow_first_batch(self) -> None:
        """Let a first batch end that is played slowly, with the turns that it has, or a person waits for minutes."""
        is_sized = bool(self.config.measured.get("ppo.batch_size", "given"))
        played_s = self.stopwatch.elapsed_s - self._batch_began_s
        if is_sized or not self._is_first_batch or played_s < FIRST_BATCH_S:
            return
        turns, wanted = self.rollout.batch_progress
        self.rollout.batch_turns = min(max(turns, SMALLEST_BATCH), wanted)
        self.rollout.cuts_episodes = self.config.ppo.has_critic

    def report_episodes(self) -> None:
        """Emit the episodes that ended since the last report."""
        for event in self._episode_counter.take_events(
            self.rollout.env_steps, self.rollout.failures.dropped
        ):
            self._emit(event)

    def _emit_mark(self, event: events.Event) -> None:
        """Emit an event from which on the recent returns, and their words, begin again."""
        self._episode_counter.begin_again(self.rollout.mode, self.rollout.prompt_version)
        self._emit(event)

    def update(self, should_stop: Callable[[], bool]) -> Verdict:
        """Update the policy on the batch that is full; a stop between two optimizer steps keeps the steps made."""
        rollout_s = self.stopwatch.elapsed_s - self._batch_began_s
        turns, _ = self.rollout.batch_progress
        batch = self.rollout.take_batch()
        self._is_first_batch = False  # not after a roll back to the beginning either
        known_prompts = self.rollout.take_known_prompts()
        turns_per_s = turns / max(rollout_s, 1e-9)
        if self.policy.narrow is not None:
            # Prompts are read once in a run, so those that come again will cost nothing in later batches.
            turns_per_s /= max(1 - known_prompts, 1e-2)
        self._measure(batch, turns_per_s)
        if self._finds_other_history(batch):
            return Verdict()
        try:
            figures = self.learner.update(
                batch,
                should_stop=should_stop,
                progress=self._emitter.progress("updating"),
            )
        except StoodStill as error:
            if self._may_roll_back:
                self._roll_backs += 1
                if self.roll_back(str(error)):
                    return Verdict()
            raise
        if self.rollout.opponent is not None:
            self.rollout.opponent.learnt(self.learner.updates)
        self.rollout.forget_caches()  # they were computed by other weights
        stats = replace(figures, rollout_s=rollout_s)
        self._begin_batch()
        self._emit(
            events.UpdateFinished(
                update=self.learner.updates,
                episodes=self.rollout.episodes,
                stats=stats,
            )
        )
        if stats.first_ratio > LARGEST_FIRST_RATIO:
            self._emitter.warn(
                f"The first ratio of this update is {stats.first_ratio:.2g} away from 1: the model scores a reply "
                "otherwise than it sampled it, so its figures cannot be trusted; in low precision, try fp32."
            )
        return self._monitor.judge(stats)

    def _measure(self, batch: Sequence[Trajectory], turns_per_s: float) -> None:
        """Take the settings that follow from the first batch, but for those that were changed live."""
        changes = changes_since(self.given, self.config)
        open_ones = [
            name for name, why in self.config.measured.items() if not why and name != "history"
        ]
        if not batch or not open_ones:
            return
        wanted = [name for name in open_ones if name not in changes]
        ppo = self.config.ppo
        found = measured_settings(batch, turns_per_s, has_critic=ppo.has_critic)
        found["ppo.novelty_coef"] = measured_novelty(batch, ppo.novelty_coef)
        self._take_measured({name: found[name] for name in wanted})

    def _finds_other_history(self, batch: Sequence[Trajectory]) -> bool:
        """Find how many earlier turns help; whether prompts have any from now on, and the batch is of no use."""
        if not self.config.finds_history:
            return False
        self._first_episodes += episodes_of(self.learner, batch)
        found = turns_that_help(self._first_episodes)
        if found is None and self.learner.updates < FIRST_UPDATES:
            return False
        self._first_episodes = []
        history: Value = 0
        reason = (
            "prompts have no earlier turns: too few episodes have ended to tell whether they help"
        )
        if found is not None:
            history = "all" if found.turns is None else found.turns
            reason = found.reason
        self._take_measured({"history": Measured(history, reason)})
        if self.config.history == 0:
            return False
        self.learner.begin_anew()
        self.rollout.restart()
        self._begin_batch()
        return True

    def _take_measured(self, found: Mapping[str, Measured]) -> None:
        values = {name: each.value for name, each in found.items()}
        reasons = {name: each.reason for name, each in found.items()}
        self.given = with_measured(self.given, values, reasons)
        config = with_measured(self.config, values, reasons)
        if config.n_envs != self.config.n_envs:
            self.rollout.resize(config.n_envs)
        self._apply(config)
        if found:
            self._emit(events.SettingsMeasured(values=values, reasons=reasons))

    @property
    def _may_roll_back(self) -> bool:
        return self.config.on_collapse == "rollback" and self._roll_backs < MOST_ROLL_BACKS

    def react_to_update(self, verdict: Verdict) -> None:
        """Roll back from a collapse, or warn of one, and keep what is good; write a checkpoint if it is time."""
        if verdict.level == "collapsed" and self._may_roll_back:
            self._roll_backs += 1
            if self.roll_back(verdict_text(verdict)):
                return
        if verdict.level != "quiet":
            self._warn_of(verdict)
        try:
            self._checkpoints.judged(good=self._monitor.is_good)
        except RunStoreError as error:
            self._emitter.warn(f"{error} The last good one is older; the run goes on.")
        if self._checkpoints.is_due(self.stopwatch.elapsed_s):
            self.save_or_warn(requested=False)

    def _warn_of(self, verdict: Verdict) -> None:
        """Warn of a finding, unless that was done not long ago."""
        now = self.learner.updates
        if now - self._warned_at.get(verdict.level, -REMIND_AFTER) < REMIND_AFTER:
            return
        self._warned_at[verdict.level] = now
        message = verdict_text(verdict)
        collapsed = verdict.level == "collapsed"
        if collapsed:
            message = f"{message} {COLLAPSE_ADVICE}"
        self._emit(events.WarningRaised(message=message, collapsed=collapsed))

    def set_mode(self, mode: Mode) -> None:
        if mode == "train" and self.rollout.mode != "train":
            self._begin_batch()  # playing in between was not for the batch
        self.rollout.mode = mode
        self._emit_mark(events.ModeChanged(mode=mode))

    def set_prompt(self, prompt: str) -> None:
        """Use another system prompt from the next reset on."""
        version = self.rollout.prompt_version + 1
        self.rollout.set_system_prompt(prompt, version)
        self._monitor = CollapseMonitor()
        self._emit_mark(events.PromptChanged(prompt_version=version, system_prompt=prompt))
        if self.learner.use_prompt(prompt):
            # All episodes of a batch are played by the same weights.
            self._opponent_begins_anew()
            self.rollout.restart()
            self._begin_batch()

    def change(self, requested: Mapping[str, Value]) -> None:
        """Use other settings from now on, all that are requested or, with a warning, none; a checkpoint comes first."""
        changes = with_final_values(requested)
        try:
            config = self._checked(changed(self.config, changes))
            self.report_episodes()  # what was played by the settings before
            if self._checkpoints.has_news(self._counters()):
                self.save_or_warn()
            if config.n_envs != self.config.n_envs:
                self.rollout.resize(config.n_envs)
        except (ConfigError, EnvError) as error:
            self._emitter.warn(f"Nothing was changed: {error}", refused="settings")
            return
        self._apply(config)
        self._emit_mark(events.SettingsChanged(changes=changes))

    def emit_restored_changes(self) -> None:
        """Emit the live changes that a resumed run has restored, if there are any."""
        restored = changes_since(self.given, self.config)
        if restored:
            changes = {name: change.after for name, change in restored.items()}
            self._emit_mark(events.SettingsChanged(changes=changes))

    def _checked(self, config: RunConfig) -> RunConfig:
        """The settings; raises ConfigError if they need what the run was begun without."""
        if self.learner.reference is None and (config.ppo.kl_coef or config.ppo.kl_coef_final):
            raise ConfigError(
                "The run began without a KL to the reference, so there is none to weigh."
            )
        unused = config.ppo.unused_by_head(self.config.ppo)
        if self.policy.narrow is not None and unused:
            raise ConfigError(unused_settings(unused))
        self.policy.require_playable(config.generation)
        return config

    def _apply(self, config: RunConfig) -> None:
        before = self.config
        self.config = config
        if before.ppo.learner != config.ppo.learner:
            # Episodes of a batch have values or have none, and are in groups or are not.
            self.rollout.restart()
            self._begin_batch()
        self.rollout.group_size = config.ppo.episodes_of_a_seed
        if before.generation != config.generation or before.n_envs != config.n_envs:
            # All episodes of a batch are played by the same sampling, in as many environments.
            self.rollout.restart()
            self._begin_batch()
        if before.generation != config.generation:
            self.policy.generation = config.generation
            self._monitor = CollapseMonitor()
        if before.history != config.history:
            self.policy.history = turns_kept(config.history, self.agent.history)
            self._monitor = CollapseMonitor()
        if before.ppo != config.ppo:
            self.learner.config = config.ppo
        self.rollout.batch_turns = config.ppo.batch_size
        self.rollout.cuts_episodes = config.cuts_episodes

    def roll_back(self, reason: str) -> bool:
        """Go on from the last good checkpoint; False, with a warning: there is none that can be read."""
        try:
            self._checkpoints.roll_back(self.policy, self.learner)
        except RunStoreError as error:
            self._emitter.warn(str(error), refused="roll_back")
            return False
        self.learner.use_prompt(self.rollout.system_prompt)
        self.report_episodes()  # of the policy that is left
        self._opponent_begins_anew()
        self.rollout.restart()
        self._begin_batch()
        self._monitor.rolled_back()
        self._warned_at.clear()
        self._emit_mark(events.RolledBack(update=self.learner.updates, reason=reason))
        self.save_or_warn()  # or a resumed run would have the weights that were left
        return True

    def _opponent_begins_anew(self) -> None:
        """Earlier selves are those of the policy that goes on."""
        if self.rollout.opponent is not None:
            self.rollout.opponent.begin_anew()

    def warm_start(
        self, data: TrainingData, builders: Builders, should_stop: Callable[[], bool]
    ) -> None:
        """Train on demonstrations, what was learnt until `should_stop` stays, and go on with that policy.

        A checkpoint is written before, to which a roll back goes, if there is room for it, and one after; the batch
        under way is dropped.
        """
        try:
            self._save(self._counters())
            self._checkpoints.keep_before_warm_start(self.policy, self.learner)
        except RunStoreError as error:
            self._emitter.warn(f"A roll back will not take this warm start back: {error}")
        emit = self._emitter.throttled()
        time_left: TimeLeft | None = None

        def progress(step: int, steps: int, loss: float) -> None:
            nonlocal time_left
            if time_left is None:
                time_left = TimeLeft(
                    self._clock
                )  # from the first step on: what is loaded before takes its own time
            left_s = time_left.seconds(step - 1, steps - 1)
            # The first one says that there is something to lose from now on.
            emit_now = self._emit if step == 1 else emit
            emit_now(events.WarmStartProgressed(step=step, steps=steps, loss=loss, left_s=left_s))

        stats = builders.warm_start(
            self.policy, self.learner, data, progress=progress, should_stop=should_stop
        )
        self._emit_mark(events.WarmStartFinished(method=data.method, stats=stats))
        self.awaits_warm_start = False
        self.rollout.restart()
        self._begin_batch()
        self._monitor = CollapseMonitor()
        self.policy_map.forget()
        self.save_or_warn()

    def _counters(self) -> Counters:
        return Counters(
            seed=self.config.seed,
            episodes=self.rollout.episodes,
            env_steps=self.rollout.env_steps,
            dropped=self.rollout.failures.dropped,
            elapsed_s=self.stopwatch.elapsed_s,
            system_prompt=self.rollout.system_prompt,
            prompt_version=self.rollout.prompt_version,
            changed=changes_since(self.given, self.config),
            generation=self.config.generation,
            seen=self._monitor,
            roll_backs=self._roll_backs,
            started=self.rollout.started,
            opponent=None if self.rollout.opponent is None else self.rollout.opponent.state(),
            awaits_warm_start=self.awaits_warm_start,
        )

    def _save(self, counters: Counters) -> None:
        self._checkpoints.save(self.policy, self.learner, counters)
        self._emit(events.CheckpointSaved(update=self.learner.updates))

    def save_or_warn(
        self,
        *,
        requested: bool = True,
        then: str = f"The run goes on, and tries again every {RETRY_S:.0f} s.",
    ) -> None:
        """Write a checkpoint; a full disk does not end a run that can go on.

        Where it was `requested`, every failure is warned of, and not the first one alone; `then` is what follows.
        """
        was_failing = self._checkpoints.is_failing
        self.report_episodes()  # a resumed run counts from here
        try:
            self._save(self._counters())
        except RunStoreError as error:
            log.exception("no checkpoint")
            if requested or not was_failing:
                self._emitter.warn(f"{error} {then}", refused="checkpoint", unwritten=True)
        else:
            if was_failing:
                self._emitter.warn("A checkpoint could be written again.")

    def rescue(self) -> None:
        """Write a checkpoint before the run ends by a failure, unless that would keep weights that are not finite."""
        self.report_episodes()
        if self._checkpoints.has_news(self._counters()) and self.policy.is_finite:
            self.save_or_warn(
                requested=False, then="What was learnt since the one before it is lost."
            )

    def finish(self) -> events.RunFinished:
        """Save what is new; how the run ended. Raises RunStoreError: the checkpoint cannot be written."""
        self.rollout.emit_corrections()
        counters = self._counters()
        if self._checkpoints.has_news(counters):
            self._save(counters)
        return events.RunFinished(
            episodes=counters.episodes,
            env_steps=counters.env_steps,
            updates=self.learner.updates,
            elapsed_s=counters.elapsed_s,
        )

    def _begin_batch(self) -> None:
        self._batch_began_s = self.stopwatch.elapsed_s


def run_started(config: RunConfig, parts: Parts, trained: str) -> RunStarted:
    """The beginning of a session; `trained` is that of the event."""
    agent = parts.agent
    return RunStarted(
        agent=catalog.agent_name(config.agent),
        env_id=agent.env_id,
        model=parts.loaded.name,
        run_dir=config.run_dir,
        seed=config.seed,
        n_envs=config.n_envs,
        mode=config.mode,
        system_prompt=parts.rollout.system_prompt,
        prompt_version=parts.rollout.prompt_version,
        action_names=list(agent.action_names),
        baselines=dict(agent.baselines),
        return_unit=agent.return_unit,
        device=str(parts.loaded.device),
        draws=parts.rollout.draws,
        episodes=parts.start.episodes,
        updates=parts.learner.updates,
        trained=trained,
    )


def verdict_text(verdict: Verdict) -> str:
    how = "has collapsed" if verdict.level == "collapsed" else "may be about to collapse"
    return f"The policy {how}: {verdict.reason}"
