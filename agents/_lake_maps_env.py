"""A lake with a new map each episode, as a Gymnasium environment; a quarter of all maps is kept for evaluations."""

from typing import Any, Literal
from zlib import crc32

import gymnasium
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import is_valid

SIZE = 4
"""Rows and columns of a map."""
HOLES = 0.2
"""Probability that a field is a hole; as of Gymnasium's random maps."""
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Change of row and column by action: left, down, right, up."""
MOST_TURNS = 100


class LakeMaps(gymnasium.Env[Any, Any]):
    """`FrozenLake-v1` that does not slip, on a map that each reset draws.

    An observation is the map's letters, row by row, and the number of the walker's field.
    """

    def __init__(self, maps: Literal["training", "held out"] = "training") -> None:
        self._wants_held_out = maps == "held out"
        self._letters = ""
        self._field = 0
        fields = SIZE * SIZE
        letters = spaces.Text(min_length=fields, max_length=fields, charset="SFHG")
        self.observation_space = spaces.Tuple((letters, spaces.Discrete(fields)))
        self.action_space = spaces.Discrete(len(MOVES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, int], dict[str, Any]]:
        super().reset(seed=seed)
        self._letters = self._drawn()
        while is_held_out(self._letters) != self._wants_held_out:
            self._letters = self._drawn()
        self._field = 0
        return (self._letters, self._field), {}

    def step(self, action: int) -> tuple[tuple[str, int], float, bool, bool, dict[str, Any]]:
        down, right = MOVES[action]
        row, column = divmod(self._field, SIZE)
        # A step over the edge stays where it is.
        row = min(max(row + down, 0), SIZE - 1)
        column = min(max(column + right, 0), SIZE - 1)
        self._field = row * SIZE + column
        kind = self._letters[self._field]
        return (self._letters, self._field), float(kind == "G"), kind in "GH", False, {}

    def _drawn(self) -> str:
        """A map on which the goal can be reached."""
        while True:
            is_hole = self.np_random.random(SIZE * SIZE) < HOLES
            inside = "".join("H" if hole else "F" for hole in is_hole[1:-1])
            letters = f"S{inside}G"
            rows = [list(letters[start : start + SIZE]) for start in range(0, SIZE * SIZE, SIZE)]
            if is_valid(rows, SIZE):
                return letters


def is_held_out(letters: str) -> bool:
    """True for a map that is kept for evaluations: a quarter of all, the same in every run."""
    return crc32(letters.encode()) % 4 == 0


gymnasium.register(
    "FrozenLakeMaps-v0", entry_point=f"{__name__}:LakeMaps", max_episode_steps=MOST_TURNS
)
