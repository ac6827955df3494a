"""Settings of a session that change while it runs: by a person, or as the first batch's episodes say."""

from collections.abc import Mapping, Sequence

from llamagym_tui.engine.learning.earlier_turns import episodes_of, turns_that_help
from llamagym_tui.engine.learning.measured_settings import (
    Measured,
    measured_novelty,
    measured_settings,
)
from llamagym_tui.engine.learning.ppo import unused_settings
from llamagym_tui.engine.learning.read_depth import VALUES, depth_that_tells, turns_at_prompts
from llamagym_tui.engine.learning.reading import fastest_reading
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.errors import ConfigError, EnvError
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
from llamagym_tui.trainer.collapse import CollapseMonitor
from llamagym_tui.trainer.session_base import SessionBase

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
    session.emit_mark(events.SettingsChanged(changes=changes))


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
    session.policy.plays_at_random = False
    found = depth_that_tells(session.policy, batch)
    if found.layers is not None:
        session.policy.read_from(found.layers)
    measured = {"read_depth": Measured(found.layers or "all", found.reason)}
    if session.config.reading == "auto" and session.config.dtype is None:
        reading = fastest_reading(session.policy, turns_at_prompts(batch).prompts)
        if reading is not None:
            measured["reading"] = Measured(reading.kind, reading.reason)
    _take_measured(session, measured)
    if found.seen:
        session.emit(
            events.DepthMeasured(
                layers=[each.layers for each in found.seen],
                explained=[list(each.explained) for each in found.seen],
                values=list(VALUES),
                read=found.layers or found.seen[-1].layers,
            )
        )
    session.restart()
    return True


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
