"""The parts of a session, once they are loaded, and the order in which they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.events import Event, PhaseChanged, WarningRaised
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.checkpoints import Checkpoints, Counters


@dataclass(frozen=True)
class Parts:
    """What plays and what learns; model, policy, PPO and rollout have the surface of the engine's."""

    agent: AgentBase
    loaded: Any
    policy: Any
    ppo: Any
    rollout: Any
    threads: int
    began: Counters
    """Where the run stood when this session took it up."""


def load_parts(builders: Builders, checkpoints: Checkpoints, tell: Callable[[Event], None]) -> Parts:
    """Load everything, telling what is being done.

    Raises:
        UsageError: the agent is unknown or its file faulty, or the model is too large.
        ModelLoadError: the model does not load.
        RunStoreError: a run is to be resumed, and its checkpoint cannot be read.
        EnvError: an environment cannot be made.
    """
    config = builders.config
    tell(PhaseChanged(phase="loading", detail="loading the model"))
    agent = builders.agent()
    if warning := builders.preflight(agent):
        tell(WarningRaised(message=warning))
    loaded = builders.model()
    policy = builders.policy(agent, loaded)
    if config.resume:
        builders.restore_start(policy)
    ppo = builders.ppo(policy)
    began = checkpoints.restore(policy, ppo) if config.resume else Counters(system_prompt=agent.get_system_prompt())
    began = began.with_prompt(config.system_prompt)
    tell(PhaseChanged(phase="loading", detail="making the environments"))
    # A resumed run does not see its first episodes again.
    rollout = builders.rollout(agent, policy, seed=config.seed + began.episodes, emit=tell)
    rollout.mode = config.mode
    rollout.set_counters(episodes=began.episodes, env_steps=began.env_steps)
    rollout.set_system_prompt(began.system_prompt, began.prompt_version)
    return Parts(agent, loaded, policy, ppo, rollout, builders.threads(policy, loaded), began)
