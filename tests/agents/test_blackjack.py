"""Blackjack's six wordings."""

from __future__ import annotations

import itertools

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.game.observed import observation_text

AGENT = BlackjackAgent()
HANDS = [
    (total, dealer, ace)
    for ace, lowest in ((0, 4), (1, 12))
    for total in range(lowest, 22)
    for dealer in range(1, 11)
]


def test_each_wording_tells_all_hands_apart_and_no_two_say_the_same() -> None:
    told = [{observation_text(AGENT, hand, {}, wording) for hand in HANDS} for wording in range(6)]
    assert [len(texts) for texts in told] == [280] * 6
    assert not any(one & other for one, other in itertools.combinations(told, 2))


def test_an_ace_that_counts_eleven_is_told_in_each_wording() -> None:
    soft = [observation_text(AGENT, (18, 1, 1), {}, wording) for wording in range(6)]
    assert soft == [
        "Your total: 18. Usable ace: yes. Dealer shows: ace.",
        "Your cards add up to 18, with a usable ace. The dealer shows an ace.",
        "The house turned up an ace. Your cards make 18, of which an ace makes 11.",
        "Dealer: an ace. You: 18 (soft).",
        "You hold 18 counting an ace as eleven and face an ace from the dealer.",
        "With an ace on the table for the bank, your hand is worth 18, soft.",
    ]
