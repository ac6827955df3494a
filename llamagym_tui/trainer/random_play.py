"""Plays a few episodes by random actions before a run: to measure its conversations, or for states to learn replies on.

An episode that fails ends there; the rollout will meet the fault again, and report it.
"""

import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from llamagym_tui.config import SEED_BITS, RunConfig
from llamagym_tui.errors import RAISED, EnvError, located
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
        EnvError: the environment cannot be made, or as many episodes in a row as end a run failed in their first turn.
    """
    env = agent_env(agent)
    until = time.monotonic() + seconds
    rng = random.Random(config.seed)
    episodes: list[list[RandomTurn]] = []
    failed = 0
    seed: int | None = config.seed % 2**SEED_BITS
    most = config.max_turns or turn_limit(env)
    try:
        env.action_space.seed(config.seed)
        while time.monotonic() < until and sum(map(len, episodes)) < turns:
            episode: list[RandomTurn] = []
            try:
                for turn in _played(agent, env, seed, rng, most):
                    episode.append(turn)
                    if time.monotonic() > until:
                        break
            except RAISED as error:
                failed += 1
                if failed == config.max_failures and not (episodes or episode):
                    raise EnvError(
                        f"{located(error)}; {agent.env_id} cannot be played until that is corrected."
                    ) from error
            if episode:
                episodes.append(episode)
            seed = None
    finally:
        env.close()
    return episodes


def _played(
    agent: AgentBase, env: Any, seed: int | None, rng: random.Random, most: int
) -> Iterator[RandomTurn]:
    """The turns of an episode, which may raise anything."""
    observation, info = env.reset(seed=seed)
    for _ in range(most):
        shown = observed(agent, observation, info)
        names = shown.actions or tuple(agent.action_names)
        name = rng.choice(names) if names else None
        yield RandomTurn(shown, name)
        action = env.action_space.sample() if name is None else action_named(agent, name)
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            return
