"""Blackjack without the luck of its cards: each policy has its mean return of Blackjack-v1, much more exactly.

A hand of Blackjack-v1 has a standard deviation of 0.95, most of which is luck. Here each card that is drawn takes off
what it is worth to a player who plays on as well as can be, and a stick pays what it pays on average, so that optimal
play has the same return in every hand. The mean of no policy changes, whatever it knows of the hand so far, as what is
taken off is 0 on average before each card (AIVAT: Burch et al., 2018). Where prompts are whole conversations, exact
returns by dynamic programming are out of reach, and this is what is left.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium

from benchmarks.exact_blackjack import (
    State,
    expected_return,
    greedy,
    hit_values,
    optimal_policy,
    state_of,
    stick_value,
)
from llamagym_tui.agents.blackjack import BlackjackAgent

HIT = 1


@cache
def optimal_hits() -> dict[State, float]:
    """Of each state, the expected return of a card and of optimal play after it."""
    return hit_values(greedy(optimal_policy()))


@cache
def optimal_return() -> float:
    """Of a hand, before its cards are dealt."""
    return expected_return(greedy(optimal_policy()))


def worth(state: State) -> float:
    """Of a state to a player who plays on as well as can be."""
    return max(optimal_hits()[state], stick_value(state[0], state[1]))


class WithoutLuck(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Rewards of Blackjack-v1 less what its cards have been worth; all of it is paid at the end of a hand."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seen, info = self.env.reset(seed=seed, options=options)
        self._state = state_of(seen)
        self._luck = worth(self._state) - optimal_return()
        return seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self._state
        seen, _, terminated, truncated, info = self.env.step(action)
        if int(action) != HIT:
            pays = stick_value(before[0], before[1])
            return seen, pays - self._luck, terminated, truncated, info
        self._state = state_of(seen)
        now = -1.0 if terminated else worth(self._state)
        self._luck += now - optimal_hits()[before]
        return seen, -1.0 - self._luck if terminated else 0.0, terminated, truncated, info


class SteadyBlackjackAgent(BlackjackAgent):
    title = "Blackjack without luck"

    def wrap_env(self, env: Any) -> Any:
        return WithoutLuck(env)
