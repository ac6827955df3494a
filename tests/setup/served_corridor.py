"""A corridor of five fields on a server of OpenEnv's own: ``python served_corridor.py PORT SESSIONS``.

The goal is at the right end; each move costs 1, so a return is minus the number of moves; after 12 the episode ends.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app

LAST, MOST_MOVES = 4, 12


class Move(Action):
    move: str


class Field(Observation):
    field: int
    legal_moves: list[str]


class Corridor(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Field:
        self._field, self._moves = random.Random(seed).randrange(LAST), 0
        return self._seen()

    def step(self, action: Move, timeout_s: float | None = None, **more: Any) -> Field:
        if action.move not in self._seen().legal_moves:
            raise ValueError(f"{action.move} is not legal")
        self._field += 1 if action.move == "right" else -1
        self._moves += 1
        return self._seen(-1.0)

    def _seen(self, reward: float | None = None) -> Field:
        is_won = self._field == LAST
        legal = ["left"] * (self._field > 0) + ["right"] * (not is_won)
        done = is_won or self._moves >= MOST_MOVES
        return Field(field=self._field, legal_moves=legal, reward=reward, done=done)

    @property
    def state(self) -> State:
        return State(step_count=self._moves)


if __name__ == "__main__":
    port, sessions = map(int, sys.argv[1:])
    app = create_app(Corridor, Move, Field, max_concurrent_envs=sessions)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
