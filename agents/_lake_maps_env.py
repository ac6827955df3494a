"""A lake with a new map each episode, as a Gymnasium environment; a quarter of all maps is kept for evaluations."""

from typing import Any, Literal
from zlib import crc32

import gymnasium
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, is_valid

SIZE = 4
"""Rows and columns of a map."""
HOLES = 0.2
"""Probability that a field is a hole, as in Gymnasium's random maps."""
MOST_TURNS = 100


class LakeMaps(gymnasium.Env[Any, Any]):
    """`FrozenLake-v1` that does not slip, on a map that each reset draws.

    An observation is the map's letters, row by row, and the number of the walker's field.
    """

    def __init__(self, maps: Literal["training", "held out"] = "training") -> None:
        self._wants_held_out = maps == "held out"
        self._letters = ""
        fields = SIZE * SIZE
        letters = spaces.Text(min_length=fields, max_length=fields, charset="SFHG")
        self.observation_space = spaces.Tuple((letters, spaces.Discrete(fields)))
        self.action_space = spaces.Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, int], dict[str, Any]]:
        super().reset(seed=seed)
        self._letters = self._drawn()
        while is_held_out(self._letters) != self._wants_held_out:
            self._letters = self._drawn()
        self._lake = FrozenLakeEnv(desc=_rows(self._letters), is_slippery=False)
        field, _ = self._lake.reset()
        return (self._letters, int(field)), {}

    def step(self, action: int) -> tuple[tuple[str, int], float, bool, bool, dict[str, Any]]:
        field, reward, terminated, _, _ = self._lake.step(action)
        return (self._letters, int(field)), float(reward), terminated, False, {}

    def _drawn(self) -> str:
        """A map on which the goal can be reached."""
        while True:
            is_hole = self.np_random.random(SIZE * SIZE) < HOLES
            inside = "".join("H" if hole else "F" for hole in is_hole[1:-1])
            letters = f"S{inside}G"
            if is_valid([list(row) for row in _rows(letters)], SIZE):
                return letters


def _rows(letters: str) -> list[str]:
    return [letters[start : start + SIZE] for start in range(0, SIZE * SIZE, SIZE)]


def is_held_out(letters: str) -> bool:
    """True for a map that is kept for evaluations: a quarter of all, the same in every run."""
    return crc32(letters.encode()) % 4 == 0


gymnasium.register(
    "FrozenLakeMaps-v0", entry_point=f"{__name__}:LakeMaps", max_episode_steps=MOST_TURNS
)
