"""What agents call a mean return, for people."""

from __future__ import annotations

import pytest

from llamagym_tui.agent import Agent
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.cart_pole import CartPoleAgent
from llamagym_tui.agents.cliff_walking import CliffWalkingAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.agents.taxi import TaxiAgent
from llamagym_tui.game.observed import MOST_DESCRIBED, described_return, described_turn
from llamagym_tui.setup.catalog import find_agent


@pytest.mark.parametrize(
    ("agent", "mean", "words"),
    [
        (BlackjackAgent, -0.058, "loses 6 chips in 100 hands (random 40, best 5)"),
        (BlackjackAgent, 0.012, "wins 1 chip in 100 hands (random 40, best 5)"),
        (CartPoleAgent, 43.21, "keeps the pole up for 43.2 steps (random 22, expert 500)"),
        (FrozenLakeAgent, 0.62, "reaches the goal in 62 of 100 episodes (random 1, optimal 100)"),
        (CliffWalkingAgent, -1200.4, "earns −1,200 an episode (random −2,079, optimal −13)"),
    ],
)
def test_a_mean_return_in_the_words_of_its_agent(agent: type[Agent], mean: float, words: str):
    assert described_return(agent(), mean) == words


def test_where_no_baseline_holds_none_is_named():
    natural = find_agent("blackjack", {"natural": True})
    assert described_return(natural(), -0.058) == "loses 6 chips in 100 hands"


@pytest.mark.parametrize(
    ("given", "words"),
    [(None, ""), ("a\n b", "a b"), ("é" * 999, "é" * MOST_DESCRIBED), ("\ud800", "?")],
)
def test_whatever_an_agent_returns_is_one_short_line(given: str, words: str):
    class Odd(BlackjackAgent):
        def describe_return(self, mean: float) -> str:
            return given

    assert described_return(Odd(), 0.0) == words


@pytest.mark.parametrize(
    ("agent", "observation", "words"),
    [
        (BlackjackAgent, (12, 3, 0), "12 against 3"),
        (BlackjackAgent, (18, 1, 1), "18 soft against ace"),
        (FrozenLakeAgent, 6, "row 1, column 2"),
        (TaxiAgent, 328, "row 3, column 1"),
        (TaxiAgent, 337, "row 3, column 1, taken in"),
        (CartPoleAgent, (0.0, 0.0, 0.0, 0.0), ""),
        (BlackjackAgent, "no state", ""),
    ],
)
def test_a_turn_in_the_words_of_its_agent(agent: type[Agent], observation: object, words: str):
    assert described_turn(agent(), observation, 0, 1.0) == words
