"""An environment that needs memory: what a customer wants is said in the first turn and asked for in the fourth."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from llamagym_tui.agent import Agent, read_action

GOODS = ("bread", "milk", "soap")
TALK = ("The sun shines.", "It rains.", "The street is empty.")


class ErrandEnv(gymnasium.Env[str, int]):
    """Pays 1 for what the customer wants, in the last turn, `idle` turns after the first.

    `is_told`: the last turn says it again.
    """

    def __init__(self, idle: int = 2, is_told: bool = False) -> None:
        self.observation_space = spaces.Text(100)
        self.action_space = spaces.Discrete(len(GOODS))
        self.idle = idle
        self.is_told = is_told
        self.wanted = 0
        self.turn = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.wanted = int(self.np_random.integers(len(GOODS)))
        self.turn = 0
        return f"The customer wants {GOODS[self.wanted]}.", {}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        if self.turn == self.idle + 2:
            return "The door closes.", float(action == self.wanted), True, False, {}
        if self.turn <= self.idle:
            return TALK[int(self.np_random.integers(len(TALK)))], 0.0, False, False, {}
        asked = "What does the customer get?"
        if self.is_told:
            asked = f"{asked} It was {GOODS[self.wanted]}."
        return asked, 0.0, False, False, {}


if "LlamaErrand-v0" not in gymnasium.registry:
    gymnasium.register("LlamaErrand-v0", entry_point=ErrandEnv)


class ErrandAgent(Agent):
    """Says nothing of how many earlier turns its prompts have."""

    env_id = "LlamaErrand-v0"

    def get_system_prompt(self) -> str:
        return 'You run a shop. Reply with {"action": n}: 0 bread, 1 milk, 2 soap.'

    def format_observation(self, observation: str) -> str:
        return observation

    def extract_action(self, response: str) -> Any:
        return read_action(response, GOODS)
