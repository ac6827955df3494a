"""Tic-tac-toe as a Gymnasium environment: the opponent moves within a step, and begins every other game, by chance.

Where the opponent is a policy, this environment asks for its moves, too: see `Agent.opponents`.
"""

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from llamagym_tui.agents.tic_tac_toe import (
    EMPTY,
    MINE,
    OPPONENTS,
    OTHER,
    START,
    THEIRS,
    free,
    marked,
    winner,
)

POLICY = "policy"
"""The opponent whose moves come from outside."""
SWAPPED = str.maketrans({MINE: THEIRS, THEIRS: MINE})


class TicTacToe(gymnasium.Env[str, Any]):
    """A win earns 1, a draw 0, a loss -1; to take a field that is not empty loses at once."""

    def __init__(
        self,
        opponent: str = "random",
        begins: Literal["either", "player", "opponent"] = "either",
    ) -> None:
        """Make a game that has not begun.

        Args:
            opponent: one of `OPPONENTS`, ``policy``, or several with ``+`` between them, of which each game draws.
            begins: the player that is trained, the opponent, or either of them, by chance.
        """
        self._opponents = opponent.split("+")
        if unknown := set(self._opponents) - {*OPPONENTS, POLICY}:
            raise ValueError(f"opponent is one of {', '.join(OPPONENTS)}, not {unknown.pop()!r}")
        self._opponent_begins = {"either": 0.5, "player": 0.0, "opponent": 1.0}[begins]
        """Its probability."""
        self._opponent = self._opponents[0]
        """Of the present game."""
        self._to_move = MINE
        self.board = START
        size = len(START)
        letters = f"{EMPTY}{MINE}{THEIRS}"
        self.observation_space = spaces.Text(min_length=size, max_length=size, charset=letters)
        self.action_space = spaces.Discrete(size)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.board = START
        if len(self._opponents) > 1:
            self._opponent = self._opponents[self.np_random.integers(len(self._opponents))]
        opponent_begins = self.np_random.random() < self._opponent_begins
        self._to_move = THEIRS if opponent_begins else MINE
        self._let_opponent_move()
        return self._seen(), self._info()

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self.board[action] != EMPTY:
            lost = -1.0 if self._to_move == MINE else 1.0
            return self._seen(), lost, True, False, self._info() | {"invalid_action": True}
        self._move(int(action))
        self._let_opponent_move()
        reward = {MINE: 1.0, THEIRS: -1.0}.get(winner(self.board), 0.0)
        return self._seen(), reward, self._is_over, False, self._info()

    @property
    def _is_over(self) -> bool:
        return bool(winner(self.board)) or not free(self.board)

    def _move(self, field: int) -> None:
        self.board = marked(self.board, field, self._to_move)
        self._to_move = MINE if self._is_over else OTHER[self._to_move]

    def _let_opponent_move(self) -> None:
        if self._to_move == THEIRS and self._opponent != POLICY:
            fields = OPPONENTS[self._opponent](self.board, THEIRS)
            self._move(fields[self.np_random.integers(len(fields))])

    def _seen(self) -> str:
        """The board as whoever is to move sees it, whose own mark is always the same."""
        return self.board if self._to_move == MINE else self.board.translate(SWAPPED)

    def _info(self) -> dict[str, Any]:
        mask = np.array([mark == EMPTY for mark in self.board], dtype=np.int8)
        return {"action_mask": mask, "opponent_moves": self._to_move == THEIRS}


gymnasium.register("TicTacToe-v0", entry_point=f"{__name__}:TicTacToe")
