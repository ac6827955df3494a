"""Blackjack in which three of ten hands are never the policy's: whatever it plays on them, it has not been trained on.

They are dealt, and played on by the book until another hand comes up, or the episode ends.
"""

from __future__ import annotations

import random
from typing import Any

import gymnasium

from benchmarks.exact_blackjack import STATES, state_of
from llamagym_tui.agents.blackjack import BlackjackAgent

SHARE = 0.3
"""Of all 280 hands."""
KEPT_BACK = frozenset(random.Random(0).sample(STATES, round(SHARE * len(STATES))))
"""The same ones in every run."""


class PlayedByTheBook(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows no hand that is kept back; what it brings counts for the turn before."""

    def __init__(self, env: gymnasium.Env[Any, Any], agent: BlackjackAgent) -> None:
        super().__init__(env)
        self._agent = agent

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        while state_of(observation) in KEPT_BACK:
            observation, _, terminated, _, info = self.env.step(self._agent.expert(observation))
            if terminated:
                observation, info = self.env.reset()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        while not terminated and state_of(observation) in KEPT_BACK:
            following = self.env.step(self._agent.expert(observation))
            observation, more, terminated, truncated, info = following
            reward = float(reward) + float(more)
        return observation, float(reward), terminated, truncated, info


class HandsKeptBackAgent(BlackjackAgent):
    title = "Blackjack, hands kept back"
    baselines = {}  # noqa: RUF012

    def wrap_env(self, env: Any) -> Any:
        return PlayedByTheBook(env, self)
