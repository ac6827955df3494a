"""Prices to follow: apples are bought and sold as their price comes and goes, told in words."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from llamagym_tui.agent import Agent, read_action

TURNS = 20
DOES = ("buy", "sell", "wait")
MOST = 3


class StallEnv(gymnasium.Env[Any, Any]):
    """The price returns to 50 from where it is; a turn's reward is the money that it brings, in tens.

    Three crates at most are held; what is left over at the end is worth nothing.
    """

    observation_space = spaces.Text(200)
    action_space = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.price = int(self.np_random.integers(20, 80))
        self.crates = 0
        self.turn = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = 0.0
        if action == 0 and self.crates < MOST:
            self.crates += 1
            reward = -self.price / 10
        if action == 1 and self.crates:
            self.crates -= 1
            reward = self.price / 10
        pull = round(0.3 * (50 - self.price))
        self.price = max(1, min(99, self.price + pull + int(self.np_random.integers(-18, 19))))
        self.turn += 1
        return self._seen(), reward, self.turn >= TURNS, False, {}

    def _seen(self) -> Any:
        return (self.price, self.crates, TURNS - self.turn)


if "Stall-v0" not in gymnasium.registry:
    gymnasium.register("Stall-v0", entry_point=StallEnv)


class StallAgent(Agent):
    env_id = "Stall-v0"
    baselines = {"random": -7.371, "optimal": 8.005}  # noqa: RUF012
    """Exact mean returns, by dynamic programming."""

    def get_system_prompt(self) -> str:
        return (
            'You trade in apples. Reply with {"action": n}: 0 buy a crate, 1 sell a crate, 2 wait.'
        )

    def format_observation(self, observation: Any) -> str:
        price, crates, left = observation
        return f"A crate costs {price}. You hold {crates} of 3 crates. {left} turns are left."

    def extract_action(self, response: str) -> Any:
        return read_action(response, DOES)
