"""Exact values of Blackjack, as its agent reckons, for measurements: of optimal play, and of any deterministic policy.

python -m benchmarks.exact_blackjack
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llamagym_tui.agents._exact_blackjack import (
    CARDS,
    STATES,
    HitProbability,
    State,
    draw,
    expected_return,
    hit_values,
    stick_value,
)

__all__ = [
    "CARDS",
    "STATES",
    "HitProbability",
    "State",
    "draw",
    "expected_return",
    "hit_values",
    "stick_value",
]


def state_of(observation: Sequence[Any]) -> State:
    """The state in an observation of the environment."""
    total, dealer, ace = (int(part) for part in observation)
    return total, dealer, ace


def greedy(hits: Mapping[State, bool]) -> HitProbability:
    """A deterministic policy, given by table."""
    return lambda state: float(hits[state])


def optimal_policy() -> dict[State, bool]:
    """The optimal policy: True where it hits. Improved until it is its own best answer."""
    best: dict[State, bool] = dict.fromkeys(STATES, False)
    while True:
        hit = hit_values(greedy(best))
        better = {state: hit[state] > stick_value(state[0], state[1]) for state in STATES}
        if better == best:
            return best
        best = better


def main() -> None:
    best = optimal_policy()
    print(f"optimal       {expected_return(greedy(best)):+.5f}")
    print(f"hit below 17  {expected_return(lambda state: float(state[0] < 17)):+.5f}")
    print(f"at random     {expected_return(lambda state: 0.5):+.5f}")


if __name__ == "__main__":
    main()
