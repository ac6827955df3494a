"""Plays a few episodes by random actions before a run: to measure its conversations, or for states to learn replies on.

A fault of the environment ends the play; the rollout will meet it again, and report it.
"""

import contextlib
import random
import time
from typing import NamedTuple

from llamagym_tui.config import SEED_BITS, RunConfig
from llamagym_tui.errors import RAISED
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import agent_env, turn_limit
from llamagym_tui.game.observed import Observed, action_named, observed


class RandomTurn(NamedTuple):
    shown: Observed
    action: str | None
    """The name of the admissible action that was drawn. None: none is named, and the environment drew one."""


def random_episodes(
    agent: AgentBase, config: RunConfig, *, turns: int, seconds: float
) -> list[list[RandomTurn]]:
    """Episodes until there are so many turns, or so many seconds are over.

    Raises:
        EnvError: the environment cannot be made.
    """
    env = agent_env(agent)
    until = time.monotonic() + seconds
    rng = random.Random(config.seed)
    episodes: list[list[RandomTurn]] = []
    with contextlib.suppress(*RAISED), contextlib.closing(env):
        env.action_space.seed(config.seed)
        observation, info = env.reset(seed=config.seed % 2**SEED_BITS)
        while time.monotonic() < until and sum(map(len, episodes)) < turns:
            episodes.append([])
            for _ in range(config.max_turns or turn_limit(env)):
                shown = observed(agent, observation, info)
                names = shown.actions or tuple(agent.action_names)
                name = rng.choice(names) if names else None
                episodes[-1].append(RandomTurn(shown, name))
                action = env.action_space.sample() if name is None else action_named(agent, name)
                observation, _, terminated, truncated, info = env.step(action)
                if terminated or truncated or time.monotonic() > until:
                    break
            if time.monotonic() < until:
                observation, info = env.reset()
    return episodes
