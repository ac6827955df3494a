"""Loads the parts of a session, in their order."""

from dataclasses import dataclass
from pathlib import Path

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.loading import LoadedModel
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.events import PhaseChanged
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.checkpoints import Checkpoints, Counters
from llamagym_tui.trainer.event_sinks import EventEmitter
from llamagym_tui.trainer.rollout.rollout import Rollout


@dataclass(frozen=True)
class Parts:
    """What plays and what learns."""

    agent: AgentBase
    loaded: LoadedModel
    policy: Policy
    learner: PPO
    rollout: Rollout
    threads: int
    """How many threads compute."""
    start: Counters
    """Where the run stood when this session began."""


def load_parts(builders: Builders, checkpoints: Checkpoints, emitter: EventEmitter) -> Parts:
    """Load everything, and report the progress."""
    config = builders.config
    emitter.emit(PhaseChanged(phase="loading", detail="loading the model"))
    agent = builders.agent()
    builders.fetch_model(lambda words: emitter.emit(PhaseChanged(phase="loading", detail=words)))
    if warning := builders.preflight(agent):
        emitter.warn(warning)
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
