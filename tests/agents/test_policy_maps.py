"""The maps of the agents that ship: every state that can be met, and what is best there."""

from __future__ import annotations

import pytest

from benchmarks.exact_blackjack import CARDS, STATES, draw, optimal_policy
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.game.pictures import Panel, PolicyMap
from llamagym_tui.trainer.map_layout import lay_out


def test_blackjacks_map_has_every_hand_that_can_be_met_once() -> None:
    hands = {draw(*draw(0, 0, first), second) for first in CARDS for second in CARDS}
    frontier = hands
    while frontier:
        frontier = {draw(*hand, card) for hand in frontier for card in CARDS} - hands
        frontier = {hand for hand in frontier if hand[0] <= 21}
        hands = hands | frontier
    met = {(total, dealer, ace) for total, ace in hands for dealer in CARDS}
    mapped = [
        state
        for panel in BlackjackAgent().policy_map().panels
        for row in panel.states
        for state in row
    ]
    assert len(mapped) == 280
    assert set(mapped) == met == set(STATES)


def test_blackjacks_best_actions_are_those_of_dynamic_programming() -> None:
    agent, optimal = BlackjackAgent(), optimal_policy()
    policy_map = agent.policy_map()
    laid_out = lay_out(agent, policy_map)
    for panel, told in zip(policy_map.panels, laid_out.panels, strict=True):
        for states, cells in zip(panel.states, told.cells, strict=True):
            assert [cell.best for cell in cells] == [[int(optimal[state])] for state in states]


class Plain(BlackjackAgent):
    """With a map of a test's making."""

    made: PolicyMap

    def policy_map(self) -> PolicyMap:
        return self.made


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (PolicyMap([Panel("p", ["1"], ["1", "2"], [[(4, 2, 0)]])]), "needs 1 rows of 2 states"),
        (PolicyMap([Panel("p", ["1"], ["1"], [[None]])]), "1 to 2,000 states"),
        (PolicyMap([Panel("p", ["1"], ["1"], [[(4, 2, 0)]])], action=2), "no action 2"),
        (
            PolicyMap([Panel("p", ["1"], ["1"], [[(4, 2, 0)]])], signs="x"),
            "one character for each of 2",
        ),
        (
            PolicyMap([Panel("p", ["1"], ["1"], [[(4, 2, 0)]])], best=lambda hand: [7]),
            "not all among 2",
        ),
    ],
)
def test_a_map_that_cannot_be_drawn_says_why(made: PolicyMap, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        lay_out(Plain(), made)
