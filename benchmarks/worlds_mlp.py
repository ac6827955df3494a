"""The MLP of the table of worlds: stable-baselines3's PPO with its defaults, in an environment of its own.

Its batch is the default one of 2,048 turns, from eight environments, which plays more turns a minute than one. Started
by `worlds` with one argument, JSON. Prints a line of JSON for each mark: how its policy plays by then, greedy and
sampled. Minutes are a processor's, as the model's are; those of its evaluation do not count.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, TextIO

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from llamagym_tui.game.environment import agent_env, turn_limit
from llamagym_tui.setup import catalog

ENVS = 8
BATCH = 2048
FIRST_SEED = 12_000_000
"""Of evaluations; the next episodes count up."""


def flat_env(agent: str, env: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """The agent's environment with its limit of turns, its observations as numbers: one-hot, whole ones as 0 to 1."""
    made = agent_env(catalog.find_agent(agent, env)())
    if made.spec is None or made.spec.max_episode_steps is None:
        made = gymnasium.wrappers.TimeLimit(made, turn_limit(made))
    if isinstance(made.observation_space, spaces.Dict) and "image" in made.observation_space.spaces:
        image = made.observation_space["image"]
        made = gymnasium.wrappers.TransformObservation(made, lambda seen: seen["image"], image)
        return _scaled(
            gymnasium.wrappers.FlattenObservation(made), 10.0
        )  # numbers of kinds, colours and states
    if isinstance(made.observation_space, spaces.Box):
        is_whole = np.issubdtype(made.observation_space.dtype, np.integer)
        flat = gymnasium.wrappers.FlattenObservation(made)
        return _scaled(flat, float(flat.observation_space.high.max())) if is_whole else flat  # type: ignore[attr-defined]
    return gymnasium.wrappers.FlattenObservation(made)


def _scaled(env: gymnasium.Env[Any, Any], most: float) -> gymnasium.Env[Any, Any]:
    box = spaces.Box(0.0, 1.0, env.observation_space.shape, np.float32)
    return gymnasium.wrappers.TransformObservation(
        env, lambda seen: np.asarray(seen, np.float32) / most, box
    )


def played(
    policy: Any, env: gymnasium.Env[Any, Any], episodes: int, *, greedy: bool
) -> dict[str, float]:
    returns = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=FIRST_SEED + episode)
        total = 0.0
        over = False
        while not over:
            action, _ = policy.predict(observation, deterministic=greedy)
            observation, reward, terminated, truncated, _ = env.step(int(action))
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    stderr = float(np.std(returns) / np.sqrt(episodes))
    return {"mean_return": float(np.mean(returns)), "return_stderr": stderr, "episodes": episodes}


class Marks(BaseCallback):
    """Evaluates and prints at each mark; ends the training after the last one."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], minutes: Sequence[float], episodes: int, answers: TextIO
    ) -> None:
        super().__init__()
        self._env = env
        self._left = list(minutes)
        self._episodes = episodes
        self._answers = answers
        self._began = time.process_time()

    def _on_step(self) -> bool:
        now = time.process_time()
        if now - self._began < 60 * self._left[0]:
            return True
        found = {
            "minutes": self._left.pop(0),
            "turns": self.num_timesteps,
            "elapsed_s": now - self._began,
            "greedy": played(self.model, self._env, self._episodes, greedy=True),
            "sampled": played(self.model, self._env, self._episodes, greedy=False),
        }
        print(json.dumps(found), file=self._answers, flush=True)
        self._began += time.process_time() - now
        return bool(self._left)


def main(
    agent: str,
    env: dict[str, Any],
    seed: int,
    minutes: Sequence[float],
    episodes: int,
    threads: int,
) -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr  # environments print, too
    torch.set_num_threads(threads)
    envs = DummyVecEnv([partial(flat_env, agent, env)] * ENVS)
    model = PPO("MlpPolicy", envs, n_steps=BATCH // ENVS, seed=seed, device="cpu")
    model.learn(10**12, callback=Marks(flat_env(agent, env), minutes, episodes, answers))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
