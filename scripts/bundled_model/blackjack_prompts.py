"""Sentences at the Blackjack table, in wordings that no lesson has, and the states in which each says hit."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.exact_blackjack import State


def below(limit: int) -> Callable[[State], bool]:
    return lambda state: state[0] < limit


def dealer(state: State) -> int:
    return state[1] if state[1] > 1 else 11


ASKED = {
    "Stick at 17 or more.": below(17),
    "Hit if your total is under 17.": below(17),
    "Always stick, never hit.": below(0),
}
"""What users typed; their wordings may be among the lessons'."""

HELD_OUT: dict[str, Callable[[State], bool]] = {
    "Hit while your total is less than 15.": below(15),
    "Stick if your total is above 13.": below(14),
    "If the total is 16 or lower, hit, else stick.": below(17),
    "Never hit when your total is over 11.": below(12),
    "Only hit below 14.": below(14),
    "Take a card if you have less than 18.": below(18),
    "Keep hitting until you reach 16.": below(16),
    "Stand on 15 and above.": below(15),
    "Draw as long as your hand is below 12.": below(12),
    "Hit on 13 or less.": below(14),
    "Do not hit at 18 or more.": below(18),
    "Please stick with 14 or more.": below(14),
    "Hit under 16, stick from 16 on.": below(16),
    "Stop at 19.": below(19),
    "You should hit when your total is at most 12.": below(13),
    "If you have 15 or more, stick.": below(15),
    "Stay when your total is 13 or higher, otherwise hit.": below(13),
    "Stick unless your total is below 12.": below(12),
    "Hit unless you have at least 17.": below(17),
    "Don't stick below 15.": below(15),
    "Never stick under 13.": below(13),
    "With 16 or more stick, with less hit.": below(16),
    "Total below 14: hit. Total 14 or more: stick.": below(14),
    "If total < 17, hit; else stick.": below(17),
    "If your sum is smaller than 15 take another card.": below(15),
    "Take cards until you have 17.": below(17),
    "Hit only when the total is lower than 11.": below(11),
    "Choose hit if your total is less than 16, choose stick otherwise.": below(16),
    "Stick when you hold 12 or more.": below(12),
    "Whenever your total is under 18, hit.": below(18),
    "Always hit, never stick.": below(99),
    "Just stick.": below(0),
    "Hit every single time.": below(99),
    "Do not take any card.": below(0),
    "Never ever stick.": below(99),
    "Hit if the dealer has 7 or more, else stick.": lambda state: dealer(state) >= 7,
    "Stick when the dealer's card is below 6, otherwise hit.": lambda state: dealer(state) >= 6,
    "If the dealer shows 9 or more, hit; if not, stick.": lambda state: dealer(state) >= 9,
    "Hit when the dealer's card is above 4.": lambda state: dealer(state) > 4,
    "Hit if your total is below 15 or the dealer shows 10 or more.": lambda s: (
        s[0] < 15 or dealer(s) >= 10
    ),
    "Hit if your total is below 16 and the dealer shows 7 or more, else stick.": lambda s: (
        s[0] < 16 and dealer(s) >= 7
    ),
    "Hit only if you have a usable ace.": lambda state: bool(state[2]),
}
