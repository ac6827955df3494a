"""The parts of a session, once they are loaded, and how they are put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llamagym_tui import catalog
from llamagym_tui.agent import Agent
from llamagym_tui.protocol.events import Event, PhaseChanged, RunStarted
from llamagym_tui.trainer.builders import Builders


@dataclass(frozen=True)
class Parts:
    """What plays and what learns; model, policy, PPO and rollout have the surface of the engine's."""

    agent: Agent
    loaded: Any
    policy: Any
    ppo: Any
    rollout: Any
    threads: int


def load_parts(builders: Builders, tell: Callable[[Event], None]) -> Parts:
    """Load everything, telling what is being done.

    Raises:
        UsageError: the agent is unknown or its file faulty.
        ModelLoadError: the model does not load.
        EnvError: an environment cannot be made.
    """
    tell(PhaseChanged(phase="loading", detail="loading the model"))
    agent = builders.agent()
    loaded = builders.model()
    policy = builders.policy(agent, loaded)
    ppo = builders.ppo(policy)
    tell(PhaseChanged(phase="loading", detail="making the environments"))
    rollout = builders.rollout(agent, policy, tell)
    threads = builders.threads(agent, policy, loaded)
    return Parts(agent, loaded, policy, ppo, rollout, threads)


def run_started(builders: Builders, parts: Parts, system_prompt: str, prompt_version: int) -> RunStarted:
    """The event that tells what a session consists of."""
    config, agent, loaded = builders.config, parts.agent, parts.loaded
    return RunStarted(
        agent=catalog.agent_name(config.agent),
        env_id=agent.env_id,
        model=loaded.name,
        run_dir=config.run_dir,
        seed=config.seed,
        n_envs=config.n_envs,
        mode=config.mode,
        system_prompt=system_prompt,
        prompt_version=prompt_version,
        action_names=list(agent.action_names),
        baselines=dict(agent.baselines),
        parameters=loaded.parameters,
        trainable=loaded.trainable,
        device=str(loaded.device),
        threads=parts.threads,
    )
