"""What a world that ships shows in random play: states in which a model can be asked, without playing it."""

from __future__ import annotations

from typing import Any, NamedTuple

from gymnasium.spaces import Discrete

from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import agent_env
from llamagym_tui.setup.catalog import find_agent

STEPS = 4000


class RandomStates(NamedTuple):
    agent: AgentBase
    states: list[Any]


def random_states(name: str) -> RandomStates:
    """An agent, and all observations of its environment if they are numbered, else those of random play."""
    agent = find_agent(name)()
    env, states = agent_env(agent), []
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    if isinstance(env.observation_space, Discrete):
        states = list(range(int(env.observation_space.n)))
    else:
        for _ in range(STEPS):
            states.append(observation)
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                observation, _ = env.reset()
    env.close()
    return RandomStates(agent, states)
