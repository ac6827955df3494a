"""Scripted experts: what they choose is the best there is."""

from __future__ import annotations

from benchmarks.exact_blackjack import STATES, optimal_policy
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.setup import catalog


def test_blackjacks_expert_is_optimal_in_every_state() -> None:
    expert = BlackjackAgent().expert
    assert {state: bool(expert(state)) for state in STATES} == optimal_policy()


def test_an_agent_has_no_expert_unless_it_defines_one() -> None:
    assert catalog.find_agent("CartPole-v1")().expert([0.0, 0.0, 0.0, 0.0]) is None
