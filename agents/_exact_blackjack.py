"""Exact expected returns of Blackjack-v1 (natural=False, sab=False) by dynamic programming.

A policy is P(hit) for each state; its value is exact, so policies can be compared without playing a hand. Cards are
drawn with replacement: 1 (ace) to 9 with 1/13 each, 10 with 4/13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

State = tuple[int, int, int]
"""(player total, dealer card with ace as 1, usable ace), as the environment shows it."""
HitProbability = Callable[[State], float]

CARDS = {card: (4 if card == 10 else 1) / 13 for card in range(1, 11)}
STATES: list[State] = [(total, dealer, 0) for total in range(4, 22) for dealer in range(1, 11)] + [
    (total, dealer, 1) for total in range(12, 22) for dealer in range(1, 11)
]
LAST_FIRST = sorted(STATES, key=lambda state: (state[2] or state[0] < 11, -state[0]))
"""The states in an order in which a card leads to earlier ones only."""


def draw(total: int, ace: int, card: int) -> tuple[int, int]:
    """Total and usable ace after one more card; a total above 21 is a bust."""
    hard = total - 10 * ace + card
    has_ace = bool(ace) or card == 1
    return (hard + 10, 1) if has_ace and hard + 10 <= 21 else (hard, 0)


@cache
def dealer_outcomes(total: int, ace: int) -> dict[int, float]:
    """Probability of each final total of a dealer who draws below 17; 0 stands for a bust."""
    if total > 21:
        return {0: 1.0}
    if total >= 17:
        return {total: 1.0}
    outcomes: dict[int, float] = {}
    for card, weight in CARDS.items():
        for final, probability in dealer_outcomes(*draw(total, ace, card)).items():
            outcomes[final] = outcomes.get(final, 0.0) + weight * probability
    return outcomes


@cache
def stick_value(total: int, dealer: int) -> float:
    outcomes = dealer_outcomes(*draw(0, 0, dealer))
    return sum(p * ((total > final) - (total < final)) for final, p in outcomes.items())


@cache
def hands_after(total: int, ace: int) -> dict[tuple[int, int], float]:
    """Probability of each total and usable ace after one more card."""
    hands: dict[tuple[int, int], float] = {}
    for card, weight in CARDS.items():
        hand = draw(total, ace, card)
        hands[hand] = hands.get(hand, 0.0) + weight
    return hands


def hit_values(policy: HitProbability) -> dict[State, float]:
    """Expected return of hitting in each state and following the policy after that."""
    hit: dict[State, float] = {}
    values: dict[State, float] = {}
    for state in LAST_FIRST:
        total, dealer, ace = state
        worth = 0.0
        for (new_total, new_ace), weight in hands_after(total, ace).items():
            worth += weight * (-1.0 if new_total > 21 else values[new_total, dealer, new_ace])
        hit[state] = worth
        p = policy(state)
        values[state] = p * worth + (1 - p) * stick_value(total, dealer)
    return hit


@cache
def start_weights() -> dict[State, float]:
    """Probability of each first observation."""
    weights: dict[State, float] = {}
    for first, p in CARDS.items():
        for second, q in CARDS.items():
            total, ace = draw(*draw(0, 0, first), second)
            for dealer, r in CARDS.items():
                weights[total, dealer, ace] = weights.get((total, dealer, ace), 0.0) + p * q * r
    return weights


def expected_return(policy: HitProbability, dealers: Sequence[int] = range(1, 11)) -> float:
    """Exact mean return a hand, of those in which the dealer shows one of these cards."""
    hit = hit_values(policy)
    total = 0.0
    weights = 0.0
    for state, weight in start_weights().items():
        if state[1] in dealers:
            p = policy(state)
            total += weight * (p * hit[state] + (1 - p) * stick_value(state[0], state[1]))
            weights += weight
    return total / weights
