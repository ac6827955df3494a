"""Hands are kept back from training, and play is measured on a scale from random to best."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium
import pytest

from benchmarks import reading
from benchmarks.exact_blackjack import (
    CARDS,
    STATES,
    expected_return,
    greedy,
    optimal_policy,
)
from benchmarks.hands_kept_back import KEPT_BACK, HandsKeptBackAgent
from llamagym_tui.game.environment import agent_env

BOOK = optimal_policy()


def test_three_of_ten_hands_are_kept_back_and_never_shown() -> None:
    assert len(KEPT_BACK) == 84
    env = agent_env(HandsKeptBackAgent())
    met: Counter[Any] = Counter()
    for seed in range(600):
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            met[tuple(map(int, observation))] += 1
            observation, _, over, _, _ = env.step(int(observation[0] < 17))
    assert not KEPT_BACK & {hand for hand in met if hand[0] <= 21}
    assert len(met) > 100


class Dealt(gymnasium.Env[Any, Any]):
    """Hands and rewards by a script; it ends with the last one."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *hands: Any) -> None:
        self.hands = list(hands)
        self.actions: list[int] = []

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        return self.hands.pop(0), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        return self.hands.pop(0), 0.5, len(self.hands) < 2, False, {}


def test_a_hand_kept_back_is_played_by_the_book_for_the_turn_before() -> None:
    hits = next(hand for hand in sorted(KEPT_BACK) if BOOK[hand])
    others = [hand for hand in STATES if hand not in KEPT_BACK]
    env = Dealt(others[0], hits, hits, others[1], others[2], others[3], others[4])
    wrapped = HandsKeptBackAgent().wrap_env(env)
    assert wrapped.reset()[0] == others[0]
    assert wrapped.step(0)[:3] == (others[1], 1.5, False)
    assert env.actions == [0, 1, 1]


def test_shares_are_those_of_the_hands_that_are_asked_for() -> None:
    found = {state: float(BOOK[state]) for state in STATES}
    wrong = next(iter(KEPT_BACK))
    found[wrong] = 1 - found[wrong]
    assert reading.like(found, BOOK, KEPT_BACK) == pytest.approx(83 / 84)
    assert reading.like(found, BOOK, set(STATES) - KEPT_BACK) == 1.0


def test_returns_against_each_card_of_the_dealer_add_up_to_the_return_of_all() -> None:
    book = greedy(BOOK)
    each = sum(weight * expected_return(book, [card]) for card, weight in CARDS.items())
    assert each == pytest.approx(expected_return(book))
    assert expected_return(book, [10]) < expected_return(book, [6])


def test_turns_are_counted_up_to_the_batch_that_plays_as_wanted() -> None:
    means = [-0.4, -0.2, -0.1, -0.09, -0.11, -0.05]
    batches = [{"mean_return": mean, "turns": 1000} for mean in means]
    assert reading.reached(batches) == "-0.1 after 4000 turns, 4 updates"
    assert reading.reached(batches[:4]) == "-0.1 not reached in 4000 turns"
