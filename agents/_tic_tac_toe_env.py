"""Tic-tac-toe as a Gymnasium environment: the opponent moves within a step, and begins every other game, by chance."""

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from llamagym_tui.agents.tic_tac_toe import (
    EMPTY,
    MINE,
    OPPONENTS,
    START,
    THEIRS,
    free,
    marked,
    winner,
)


class TicTacToe(gymnasium.Env[str, Any]):
    """A win earns 1, a draw 0, a loss -1; to take a field that is not empty loses at once."""

    def __init__(
        self, opponent: Literal["random", "careful", "expert", "first"] = "random"
    ) -> None:
        if opponent not in OPPONENTS:
            raise ValueError(f"opponent is one of {', '.join(OPPONENTS)}, not {opponent!r}")
        self._fields = OPPONENTS[opponent]
        self.board = START
        self.observation_space = spaces.Text(
            min_length=len(START), max_length=len(START), charset=f"{EMPTY}{MINE}{THEIRS}"
        )
        self.action_space = spaces.Discrete(len(START))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.board = START
        if self.np_random.random() < 0.5:
            self._let_opponent_move()
        return self.board, self._info()

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self.board[action] != EMPTY:
            return self.board, -1.0, True, False, self._info() | {"invalid_action": True}
        self.board = marked(self.board, int(action), MINE)
        if free(self.board) and not winner(self.board):
            self._let_opponent_move()
        has_line = winner(self.board)
        reward = {MINE: 1.0, THEIRS: -1.0}.get(has_line, 0.0)
        return self.board, reward, bool(has_line) or not free(self.board), False, self._info()

    def _let_opponent_move(self) -> None:
        fields = self._fields(self.board, THEIRS)
        field = fields[self.np_random.integers(len(fields))]
        self.board = marked(self.board, field, THEIRS)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.array([mark == EMPTY for mark in self.board], dtype=np.int8)}


gymnasium.register("TicTacToe-v0", entry_point=f"{__name__}:TicTacToe")
