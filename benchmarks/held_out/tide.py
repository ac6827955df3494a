"""Tide-v0: is a gauge above or below where it stood a turn ago? It shows one number, so the former is remembered."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from llamagym_tui.agents.generic import GenericAgent

JUDGED = 6
"""Turns of an episode that pay; the first one has nothing before it."""


class TideEnv(gymnasium.Env[Any, Any]):
    """The gauge stands at any number, never at the same one twice running."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 99, (1,), np.int64)
        self.action_space = spaces.Discrete(2)
        self.numbers: list[int] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.numbers = [int(self.np_random.integers(100))]
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """1 for what is right, -1 for what is wrong: 0 swells, the number is larger now; 1 ebbs, it is smaller."""
        paid = 0.0
        if len(self.numbers) > 1:
            ebbs = self.numbers[-1] < self.numbers[-2]
            paid = 1.0 if bool(action) == ebbs else -1.0
        ends = len(self.numbers) > JUDGED
        self.numbers.append((self.numbers[-1] + int(self.np_random.integers(1, 100))) % 100)
        return self._seen(), paid, ends, False, {}

    def _seen(self) -> Any:
        return np.array(self.numbers[-1:], dtype=np.int64)


if "Tide-v0" not in gymnasium.registry:
    gymnasium.register("Tide-v0", entry_point=TideEnv, max_episode_steps=JUDGED + 1)


class TideAgent(GenericAgent):
    """Plays ``Tide-v0``; a prompt has the turn before."""

    history = 1
    env_id = "Tide-v0"
    title = "Tide"
    action_names = ("swells", "ebbs")
    baselines = {"random": 0.0, "memoryless": 3.0303, "optimal": 6.0}  # noqa: RUF012
    """Exact mean returns; ``python -m benchmarks.held_out.exact`` computes them."""

    def get_system_prompt(self) -> str:
        return 'You watch a gauge in a harbour. Reply with {"action": 0} for swells or {"action": 1} for ebbs.'

    def format_observation(self, observation: Any) -> str:
        return f"The gauge stands at {int(observation[0])}."
