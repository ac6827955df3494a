"""Training of a session's policy: updates, the reaction to a collapse, roll backs, warm starts.

Also the settings that change while it runs: by a person, or as the first batch's episodes say.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from llamagym_tui.demos.training_data import TrainingData
from llamagym_tui.engine.learning.earlier_turns import episodes_of, turns_that_help
from llamagym_tui.engine.learning.measured_settings import (
    Measured,
    measured_novelty,
    measured_settings,
)
from llamagym_tui.engine.learning.ppo import unused_settings
from llamagym_tui.engine.learning.read_depth import (
    Shown,
    Turns,
    demonstrated_turns,
    depth_that_tells,
    turns_at_prompts,
)
from llamagym_tui.engine.learning.reading import fastest_reading
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.errors import ConfigError, EnvError, RunStoreError
from llamagym_tui.protocol import events
from llamagym_tui.settings import (
    RunConfig,
    Value,
    changed,
    changes_since,
    turns_kept,
    with_final_values,
    with_measured,
)
from llamagym_tui.trainer.collapse import CollapseMonitor, Verdict
from llamagym_tui.trainer.event_sinks import TimeLeft
from llamagym_tui.trainer.session_base import SessionBase

LARGEST_FIRST_RATIO = 0.05
"""Distance of an update's first ratio from 1 above which sampling and scoring disagree."""
COLLAPSE_ADVICE = "Roll back, and lower ppo.lr or raise ppo.kl_coef."


def update(session: SessionBase) -> Verdict:
    """Update the policy on the full batch; a stop between two optimizer steps keeps the steps made."""
    rollout = session.rollout
    rollout_s = session.stopwatch.elapsed_s - session.batch_began_s
    turns, _ = rollout.batch_progress
    batch = rollout.take_batch()
    if finds_depth(session, batch):
        return Verdict()
    session.is_first_batch = False  # not after a roll back to the beginning either
    known_prompts = rollout.take_known_prompts()
    turns_per_s = turns / max(rollout_s, 1e-9)
    if session.policy.narrow is not None:
        # Prompts are read once in a run, so those that come again will cost nothing in later batches.
        turns_per_s /= max(1 - known_prompts, 1e-2)
    measure(session, batch, turns_per_s)
    if finds_other_history(session, batch):
        return Verdict()
    figures = session.learner.update(
        batch,
        should_stop=session.should_end_update,
        progress=session.emitter.progress("learning"),
    )
    if rollout.opponent is not None:
        rollout.opponent.learnt(session.learner.updates)
    rollout.forget_caches()  # they were computed by other weights
    stats = replace(figures, rollout_s=rollout_s)
    session.begin_batch()
    session.emit(
        events.UpdateFinished(
            update=session.learner.updates, episodes=rollout.episodes, stats=stats
        )
    )
    if stats.first_ratio > LARGEST_FIRST_RATIO:
        session.emitter.warn(
            f"The first ratio of this update is {stats.first_ratio:.2g} away from 1: the model scores a reply "
            "otherwise than it sampled it, so its figures cannot be trusted; in low precision, try fp32."
        )
    return session.monitor.judge(stats)


def react(session: SessionBase, verdict: Verdict) -> None:
    """Warn of a collapse, keep the last checkpoint if the policy is good, and write another one if it is time."""
    if verdict.is_new:
        collapsed = verdict.level == "collapsed"
        how = "has collapsed" if collapsed else "may be about to collapse"
        message = f"The policy {how}: {verdict.reason}"
        if collapsed:
            message = f"{message} {COLLAPSE_ADVICE}"
        session.emit(events.WarningRaised(message=message, collapsed=collapsed))
    try:
        session.checkpoints.judged(good=session.monitor.is_good)
    except RunStoreError as error:
        session.emitter.warn(f"{error} The last good one is older; the run goes on.")
    if session.checkpoints.is_due(session.stopwatch.elapsed_s):
        session.save_or_warn(requested=False)


def roll_back(session: SessionBase) -> None:
    """Go on from the last good checkpoint; with a warning, nothing is done if none can be read."""
    try:
        session.checkpoints.roll_back()
    except RunStoreError as error:
        session.emitter.warn(str(error), refused="roll_back")
        return
    session.learner.use_prompt(session.rollout.system_prompt)
    session.report_episodes()  # of the policy that is left
    session.opponent_begins_anew()
    session.restart()
    session.monitor.rolled_back()
    session.emit(events.RolledBack(update=session.learner.updates, reason="requested"))
    session.save_or_warn()  # or a resumed run would have the weights that were left


def warm_start(session: SessionBase, data: TrainingData) -> None:
    """Train on demonstrations, and go on with that policy; if it is ended early, what was learnt stays.

    A checkpoint is written before, to which a roll back goes, and one after; the batch under way is dropped. If the
    layers to read are not known yet, the demonstrations tell.
    """
    if session.policy.plays_at_random:
        measure_depth(session, demonstrated_turns(session.policy, data.conversations))
    try:
        session.save()
        session.checkpoints.keep_before_warm_start()
    except RunStoreError as error:
        session.emitter.warn(f"A roll back will not take this warm start back: {error}")
    emit = session.emitter.throttled()
    time_left: TimeLeft | None = None

    def progress(step: int, steps: int, loss: float) -> None:
        nonlocal time_left
        if time_left is None:  # what is loaded before the first step takes its own time
            time_left = TimeLeft(session.clock)
        left_s = time_left.seconds(step - 1, steps - 1)
        # The first one says that there is something to lose from now on.
        emit_now = session.emit if step == 1 else emit
        emit_now(events.WarmStartProgressed(step=step, steps=steps, loss=loss, left_s=left_s))

    stats = session.builders.warm_start(
        session.policy,
        session.learner,
        data,
        progress=progress,
        should_stop=session.should_end_warm_start,
    )
    session.emit(events.WarmStartFinished(method=data.method, stats=stats))
    session.awaits_warm_start = False
    session.restart()
    session.monitor = CollapseMonitor()
    session.policy_map.begin_again()
    session.save_or_warn()


FIRST_UPDATES = 5
"""Updates after which prompts stay without earlier turns, if no episodes have shown whether these help."""


def change(session: SessionBase, requested: Mapping[str, Value]) -> None:
    """Use other settings from now on, all that are requested or, with a warning, none; a checkpoint comes first."""
    changes = with_final_values(requested)
    try:
        config = changed(session.config, changes)
        _require_usable(session, config)
        session.report_episodes()  # what was played by the settings before
        if session.has_news:
            session.save_or_warn()
        if config.n_envs != session.config.n_envs:
            session.rollout.resize(config.n_envs)
    except (ConfigError, EnvError) as error:
        session.emitter.warn(f"Nothing was changed: {error}", refused="settings")
        return
    apply(session, config)
    session.emit(events.SettingsChanged(changes=changes))


def _require_usable(session: SessionBase, config: RunConfig) -> None:
    """Raises ConfigError if settings need what the run was begun without."""
    if session.learner.reference is None and (config.ppo.kl_coef or config.ppo.kl_coef_final):
        raise ConfigError("The run began without a KL to the reference, so there is none to weigh.")
    unused = config.ppo.unused_by_head(session.config.ppo)
    if session.policy.narrow is not None and unused:
        raise ConfigError(unused_settings(unused))
    session.policy.require_playable(config.generation)


def apply(session: SessionBase, config: RunConfig) -> None:
    """Let these settings hold from now on."""
    before = session.config
    session.config = config
    is_sampled_otherwise = before.generation != config.generation
    if (
        is_sampled_otherwise
        or before.ppo.learner != config.ppo.learner
        or before.n_envs != config.n_envs
    ):
        session.restart()
    if is_sampled_otherwise:
        session.policy.generation = config.generation
    if before.history != config.history:
        session.policy.history = turns_kept(config.history, session.agent.history)
    if is_sampled_otherwise or before.history != config.history:
        session.monitor = CollapseMonitor()  # earlier returns are of another policy
    if before.ppo != config.ppo:
        session.learner.config = config.ppo
    session.rollout.group_size = config.ppo.episodes_of_a_seed
    session.rollout.batch_turns = config.ppo.batch_size
    session.rollout.cuts_episodes = config.cuts_episodes


def measure(session: SessionBase, batch: Sequence[Trajectory], turns_per_s: float) -> None:
    """Take the settings that follow from the first batch, except those that were changed live."""
    config = session.config
    open_ones = [name for name, why in config.measured.items() if not why and name != "history"]
    if not batch or not open_ones:
        return
    found = measured_settings(batch, turns_per_s, has_critic=config.ppo.has_critic)
    found["ppo.novelty_coef"] = measured_novelty(batch, config.ppo.novelty_coef)
    changes = changes_since(session.given, config)
    _take_measured(session, {name: found[name] for name in open_ones if name not in changes})


def finds_depth(session: SessionBase, batch: Sequence[Trajectory]) -> bool:
    """Find the layer at which the game is seen, from a batch that was played at random; true if this was one."""
    if not session.policy.plays_at_random:
        return False
    measure_depth(session, turns_at_prompts(batch))
    session.restart()
    return True


def measure_depth(session: SessionBase, turns: Turns | Shown) -> None:
    """Read the layers from now on at which the game is seen, in the type in which they are read fastest."""
    session.policy.plays_at_random = False
    found = depth_that_tells(session.policy, turns)
    if found.layers is not None:
        session.policy.read_from(found.layers)
    measured = {"read_depth": Measured(found.layers or "all", found.reason)}
    if session.config.reading == "auto" and session.config.dtype is None:
        reading = fastest_reading(session.policy, turns.prompts)
        if reading is not None:
            measured["reading"] = Measured(reading.kind, reading.reason)
    _take_measured(session, measured)
    if found.seen:
        session.emit(
            events.DepthMeasured(
                layers=[each.layers for each in found.seen],
                explained=[list(each.explained) for each in found.seen],
                values=list(found.values),
                read=found.layers or found.seen[-1].layers,
            )
        )


def finds_other_history(session: SessionBase, batch: Sequence[Trajectory]) -> bool:
    """Find how many earlier turns help; true if prompts have some from now on, which makes the batch useless."""
    if not session.config.finds_history:
        return False
    session.first_episodes += episodes_of(session.learner, batch)
    found = turns_that_help(session.first_episodes)
    if found is None and session.learner.updates < FIRST_UPDATES:
        return False
    session.first_episodes = []
    if found is None:
        history: Value = 0
        reason = (
            "prompts have no earlier turns: too few episodes have ended to tell whether they help"
        )
    else:
        history = "all" if found.turns is None else found.turns
        reason = found.reason
    _take_measured(session, {"history": Measured(history, reason)})
    if session.config.history == 0:
        return False
    session.learner.begin_anew()
    session.restart()
    return True


def _take_measured(session: SessionBase, found: Mapping[str, Measured]) -> None:
    values = {name: each.value for name, each in found.items()}
    reasons = {name: each.reason for name, each in found.items()}
    config = with_measured(session.config, values, reasons)
    if config.n_envs != session.config.n_envs:
        session.rollout.resize(config.n_envs)
    apply(session, config)
    session.keep(with_measured(session.given, values, reasons))
    if found:
        session.emit(events.SettingsMeasured(values=values, reasons=reasons))
