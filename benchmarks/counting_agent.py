"""A conversation of known length: the environment counts its turns, whatever the reply, and its reward is 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium

from llamagym_tui.agent import ActionReading, Agent, read_action

ENV_ID = "LlamaGymBenchmarkCount-v0"
TURNS = 52


class CountingEnv(gymnasium.Env[int, int]):
    """Ends after `turns` steps; the observation is the number of steps taken."""

    def __init__(self, turns: int = TURNS) -> None:
        self.observation_space = gymnasium.spaces.Discrete(turns + 1)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.turns, self.steps = turns, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.steps, 0.0, self.steps >= self.turns, False, {}


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point=CountingEnv)


class CountingAgent(Agent):
    """Its observations are as long as a Blackjack hand's."""

    env_id = ENV_ID
    env_kwargs: ClassVar[Mapping[str, Any]] = {"turns": TURNS}
    action_names = ("stick", "hit")

    def get_system_prompt(self) -> str:
        return 'You are counting your turns. Reply with {"action": 0} to stick or {"action": 1} to hit.'

    def format_observation(self, observation: Any) -> str:
        return f"Your total: {int(observation)}. Usable ace: no. Dealer shows: 7."

    def extract_action(self, response: str) -> ActionReading:
        return read_action(response, self.action_names)
