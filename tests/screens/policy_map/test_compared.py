"""Two maps beside each other: in a sentence, and the states in which they differ."""

from __future__ import annotations

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.screens.policy_map.compared import where_it_differs
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, play_changes
from tests.screens.map_events import hitting, layout_of

BLACKJACK = layout_of(BlackjackAgent())


def hitting_below(threshold: float) -> MappedPolicy:
    return MappedPolicy(BLACKJACK, hitting(threshold, update=1))


def test_a_sentence_says_which_action_b_prefers_more_often() -> None:
    # 12 and 11: twelve is hard and soft, eleven only hard; ten cards of the dealer each.
    fewer, more = hitting_below(10.5), hitting_below(12.5)
    # Hit were 7 of 28 rows: hard totals 4 to 10.
    assert play_changes(fewer, more) == "30 of 280 hands change; hit 25% → 36%"
    assert play_changes(more, fewer) == "30 of 280 hands change; stick 64% → 75%"
    assert play_changes(more, more) == "0 of 280 hands change"


def test_only_what_differs_is_left_of_b() -> None:
    found = where_it_differs(hitting_below(10.5), hitting_below(12.5))
    known = [words for words, cell in found.states.items() if cell.shares]
    assert len(known) == 30
    assert {words[:15] for words in known} == {"Your total: 12.", "Your total: 11."}
    assert found.choices == {1: 30}
