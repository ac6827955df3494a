"""A game for two: each pulls a rope by one or two steps; who has pulled it to three wins, which the other loses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
from gymnasium import spaces

from llamagym_tui.agent import Agent

WIN = 3


class Tug(gymnasium.Env[int, int]):
    """The observation is how far the rope is on the side of whoever is to move."""

    def __init__(self, opponent: str = "weak") -> None:
        self.is_asked = opponent == "policy"
        self.observation_space, self.action_space = spaces.Discrete(9, start=-4), spaces.Discrete(2)
        self.rope = 0
        self.others_turn = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.rope = 0
        self.others_turn = self.is_asked and self.np_random.random() < 0.5
        return self.seen()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.pull(1 + action)
        if not self.is_asked and abs(self.rope) < WIN:
            self.rope -= 1
        is_over = abs(self.rope) >= WIN
        reward = 0.0
        if is_over:
            reward = 1.0 if self.rope > 0 else -1.0
        return self.seen()[0], reward, is_over, False, self.seen()[1]

    def pull(self, steps: int) -> None:
        self.rope += -steps if self.others_turn else steps
        self.others_turn = self.is_asked and not self.others_turn

    def seen(self) -> tuple[int, dict[str, Any]]:
        rope = -self.rope if self.others_turn else self.rope
        return rope, {"opponent_moves": self.others_turn}


if "LlamaTug-v0" not in gymnasium.registry:
    gymnasium.register("LlamaTug-v0", entry_point=Tug, max_episode_steps=20)


class TugAgent(Agent):
    env_id = "LlamaTug-v0"
    env_kwargs: ClassVar[Mapping[str, Any]] = {"opponent": "self"}
    opponents = ("weak",)
    action_names = ("gently", "hard")
    history = 0

    def get_system_prompt(self) -> str:
        return "Pull."

    def format_observation(self, observation: Any) -> str:
        return f"The rope is at {observation}."
