"""Training of a session's policy: updates, the reaction to a collapse, roll backs, warm starts."""

from msgspec.structs import replace

from llamagym_tui.demos.training_data import TrainingData
from llamagym_tui.errors import RunStoreError
from llamagym_tui.protocol import events
from llamagym_tui.trainer import live_settings
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
    if live_settings.finds_depth(session, batch):
        return Verdict()
    session.is_first_batch = False  # not after a roll back to the beginning either
    known_prompts = rollout.take_known_prompts()
    turns_per_s = turns / max(rollout_s, 1e-9)
    if session.policy.narrow is not None:
        # Prompts are read once in a run, so those that come again will cost nothing in later batches.
        turns_per_s /= max(1 - known_prompts, 1e-2)
    live_settings.measure(session, batch, turns_per_s)
    if live_settings.finds_other_history(session, batch):
        return Verdict()
    figures = session.learner.update(
        batch,
        should_stop=session.should_end_update,
        progress=session.emitter.progress("updating"),
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
    session.emit_mark(events.RolledBack(update=session.learner.updates, reason="requested"))
    session.save_or_warn()  # or a resumed run would have the weights that were left


def warm_start(session: SessionBase, data: TrainingData) -> None:
    """Train on demonstrations, and go on with that policy; if it is ended early, what was learnt stays.

    A checkpoint is written before, to which a roll back goes, and one after; the batch under way is dropped.
    """
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
    session.emit_mark(events.WarmStartFinished(method=data.method, stats=stats))
    session.awaits_warm_start = False
    session.restart()
    session.monitor = CollapseMonitor()
    session.policy_map.begin_again()
    session.save_or_warn()
