"""Blackjack without luck: every policy has its exact return, with much less spread."""

from collections.abc import Callable
from random import Random
from statistics import fmean, stdev

import pytest

from benchmarks.exact_blackjack import (
    State,
    expected_return,
    greedy,
    optimal_policy,
    state_of,
)
from benchmarks.steady_blackjack import SteadyBlackjackAgent
from llamagym_tui.game.environment import agent_env

HANDS = 1500
POLICIES = {
    "stick": lambda state: 0.0,
    "hit below 15": lambda state: float(state[0] < 15),
    "random": lambda state: 0.5,
}


def returns(policy: Callable[[State], float]) -> list[float]:
    env, chance, found = agent_env(SteadyBlackjackAgent()), Random(1), list[float]()
    for seed in range(HANDS):
        seen, _ = env.reset(seed=seed)
        over, total = False, 0.0
        while not over:
            action = int(chance.random() < policy(state_of(seen)))
            seen, reward, over, _, _ = env.step(action)
            total += reward
        found.append(total)
    return found


def test_optimal_play_has_the_same_return_in_every_hand() -> None:
    best = greedy(optimal_policy())
    assert returns(best) == pytest.approx([expected_return(best)] * HANDS, abs=1e-9)


@pytest.mark.parametrize("name", POLICIES)
def test_each_policy_has_its_exact_return_with_less_spread(name: str) -> None:
    found = returns(POLICIES[name])
    error = stdev(found) / HANDS**0.5
    assert abs(fmean(found) - expected_return(POLICIES[name])) < 3.5 * error
    assert stdev(found) < 0.65, "a hand of Blackjack-v1 has 0.95"
