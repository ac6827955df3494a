"""A number to hold: the level of a tank that rain fills and a valve drains, told in words."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from llamagym_tui.agent import Agent, read_action

TURNS = 24
VALVES = ("close", "half", "open")
DRAINED = (0, 7, 14)
"""Units that each of them drains in a turn."""
RAIN = (2, 11)
"""Units that it rains in a turn, where it drizzles and where it pours."""
CHANGES = 0.2
"""Probability that the rain changes after a turn."""


class TankEnv(gymnasium.Env[Any, Any]):
    """Rain fills the tank by 2 or by 11 a turn, and its rate stays for some turns; the valve drains it.

    The reward is 1 at the mark and falls by a tenth for each unit that the level is away from it, to -1 at least.
    """

    observation_space = spaces.MultiDiscrete([100, 100, 2])
    action_space = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.level = int(self.np_random.integers(20, 80))
        self.mark = int(self.np_random.integers(30, 70))
        self.pours = int(self.np_random.integers(2))
        self.turn = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.level = max(0, min(99, self.level + RAIN[self.pours] - DRAINED[action]))
        if self.np_random.random() < CHANGES:
            self.pours = 1 - self.pours
        self.turn += 1
        reward = max(-1.0, 1.0 - abs(self.level - self.mark) / 10)
        return self._seen(), reward, False, self.turn >= TURNS, {}

    def _seen(self) -> Any:
        return (self.level, self.mark, self.pours)


if "Tank-v0" not in gymnasium.registry:
    gymnasium.register("Tank-v0", entry_point=TankEnv)


class TankAgent(Agent):
    env_id = "Tank-v0"
    baselines = {"random": -14.066, "optimal": 17.451}  # noqa: RUF012
    """Exact mean returns, by dynamic programming."""

    def get_system_prompt(self) -> str:
        return 'You hold the water in a tank at its mark. Reply with {"action": n}: 0 close the valve, 1 half, 2 open.'

    def format_observation(self, observation: Any) -> str:
        level, mark, pours = observation
        rain = "It pours." if pours else "It drizzles."
        return f"The level is {level}, the mark is {mark}. {rain}"

    def extract_action(self, response: str) -> Any:
        return read_action(response, VALVES)
