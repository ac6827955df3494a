"""Mean returns of random play, of an agent's expert and, where the transitions are known, of optimal play.

Where the environment has a table of transitions (toy text) they are exact, by dynamic programming over the steps left;
elsewhere they are means over episodes. A limit of steps is the environment's own, or that of a run. Random play takes
any action, or of those that an agent names by turn any that is admissible.

    python -m benchmarks.world_baselines cliff_walking [EPISODES]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from llamagym_tui.game.actions import plain_action
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import agent_env, evaluated_agent, turn_limit
from llamagym_tui.game.observed import Info, action_named, admissible_actions, expert_action
from llamagym_tui.setup import catalog

Value = Callable[[Sequence[float], int], float]
"""Of a state, by what each of its actions is worth, and its number."""
SEED = 6_000_000


def random_action(
    agent: AgentBase, observation: Any, info: Info, env: Any, rng: random.Random
) -> Any:
    """A random one of the actions that are admissible now; if none are named, a random one of the environment's."""
    names = admissible_actions(agent, observation, info)
    if names:
        return action_named(agent, rng.choice(names))
    return plain_action(env.action_space.sample())


def exact(env: Any, value_of: Value) -> float:
    """The mean return over the starts, if a state is worth what `value_of` makes of its actions."""
    inner = env.unwrapped
    table, values = inner.P, np.zeros(len(inner.P))
    for _ in range(turn_limit(env)):
        worth = [
            [
                sum(
                    p * (reward if ended else reward + values[to]) for p, to, reward, ended in moves
                )
                for moves in actions.values()
            ]
            for actions in table.values()
        ]
        values = np.array([value_of(actions, state) for state, actions in enumerate(worth)])
    return float(np.dot(inner.initial_state_distrib, values))


def played(env: Any, act: Callable[[Any, Info], Any], episodes: int) -> tuple[float, float]:
    """Mean return over episodes of an environment, and its standard error."""
    returns = []
    env.action_space.seed(SEED)
    for episode in range(episodes):
        observation, info = env.reset(seed=SEED + episode)
        total = 0.0
        turns = 0
        over = False
        while not over:
            observation, reward, terminated, truncated, info = env.step(act(observation, info))
            turns += 1
            total += float(reward)
            over = terminated or truncated or turns >= turn_limit(env)
        returns.append(total)
    return float(np.mean(returns)), float(np.std(returns) / np.sqrt(episodes))


def by_playing(agent: AgentBase, env: Any, episodes: int) -> dict[str, tuple[float, float]]:
    """Mean returns of random play and of the expert, each with its standard error."""
    by_chance = partial(random_action, agent, env=env, rng=random.Random(SEED))
    players = {"random": by_chance, "expert": partial(expert_action, agent, env=env)}
    return {name: played(env, act, episodes) for name, act in players.items()}


def main(name: str, episodes: int = 2000) -> None:
    agent: AgentBase = evaluated_agent(catalog.find_agent(name)())
    env = agent_env(agent)
    if hasattr(env.unwrapped, "P"):

        def by_expert(actions: Sequence[float], state: int) -> float:
            action = agent.expert(state)
            return 0.0 if action is None else actions[action]

        print(f"random   {exact(env, lambda actions, state: float(np.mean(actions))):.4f}")
        print(f"expert   {exact(env, by_expert):.4f}")
        print(f"optimal  {exact(env, lambda actions, state: max(actions)):.4f}")
    else:
        for player, (mean, error) in by_playing(agent, env, episodes).items():
            print(f"{player}   {mean:.2f} ± {1.96 * error:.2f} over {episodes} episodes")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
