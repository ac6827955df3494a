"""The shelves of a shop as a Gymnasium environment: an episode is a delivery of four things."""

from typing import Any, Literal

import gymnasium
from gymnasium import spaces

from llamagym_tui.agents.sorting import KINDS, SHELVES, WORDS

THINGS = 4
"""Things of a delivery."""


class Sorting(gymnasium.Env[str, Any]):
    """An observation is the word for the next thing; the right shelf earns 1."""

    def __init__(self, words: Literal["training", "held out"] = "training") -> None:
        self._words = WORDS[words]
        self._sorted = 0
        self.observation_space = spaces.Text(max_length=20)
        self.action_space = spaces.Discrete(len(KINDS))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self._sorted = 0
        return self._next(), {}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        reward = float(action == SHELVES[self._word])
        self._sorted += 1
        return self._next(), reward, self._sorted == THINGS, False, {}

    def _next(self) -> str:
        self._word = self._words[self.np_random.integers(len(self._words))]
        return self._word


gymnasium.register("Sorting-v0", entry_point=f"{__name__}:Sorting")
