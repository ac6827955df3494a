"""What a warm start would train on, in figures and doubts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.training_data import (
    TrainingData,
    doubts,
    fact_lines,
    training_data,
    training_facts,
)
from llamagym_tui.game.chat import assistant, system, user
from llamagym_tui.protocol.events import DemonstrationsRead
from tests.demos.test_files import a_demo

AGENT = BlackjackAgent()


def demo(*replies: str, prompt: str = "Play.", **changes: Any) -> Demonstration:
    """A hand whose replies name hit if there is a 1 in them."""
    messages = [system(prompt)]
    for reply in replies:
        messages += [user("Your total: 11."), assistant(reply)]
    actions = [int("1" in reply) for reply in replies]
    return a_demo(
        messages=messages,
        actions=actions,
        rewards=[0.0] * len(replies),
        length=len(replies),
        **changes,
    )


def facts(*demos: Demonstration) -> DemonstrationsRead:
    return training_facts(TrainingData(Path("hands.jsonl"), list(demos), "sft"), AGENT, "Play.")


def test_turns_and_actions_are_counted_and_other_prompts_doubted() -> None:
    found = facts(
        demo('{"action": 1}', '{"action":0}'),
        demo("Action: 1", prompt="Win."),
        demo('{"action": 1}', prompt=""),
    )
    assert (found.episodes, found.turns, found.actions) == (3, 4, {"stick": 1, "hit": 3})
    assert found.under_present_prompt == 1
    assert fact_lines(found)["actions"] == "hit 3 (75%) · stick 1 (25%)"
    assert doubts(found)[-1].startswith(
        "2 of 3 demonstrations were recorded under another system prompt"
    )
    assert len(doubts(found, "dpo")) == 1


def test_of_a_corrected_episode_only_the_turns_of_the_person_count() -> None:
    found = facts(demo("no idea, 0", '{"action": 1}', replaced_replies={1: "no"}))
    assert (found.turns, found.actions) == (1, {"stick": 0, "hit": 1})


@pytest.mark.parametrize(("episodes", "expected"), [(49, True), (50, False)])
def test_below_fifty_episodes_are_few(episodes: int, expected: bool) -> None:
    balanced = [demo('{"action": 1}', '{"action": 0}', seed=seed) for seed in range(episodes)]
    assert any("learnt by heart" in text for text in doubts(facts(*balanced))) is expected


@pytest.mark.parametrize(("turns", "expected"), [(996, True), (1000, False)])
def test_few_episodes_of_many_turns_are_not_few(turns: int, expected: bool) -> None:
    long = demo(*['{"action": 1}', '{"action": 0}'] * (turns // 4))
    assert (
        any("2 episodes may be learnt by heart" in text for text in doubts(facts(long, long)))
        is expected
    )


@pytest.mark.parametrize(("hits", "expected"), [(8, False), (9, True)])
def test_an_action_in_nine_of_ten_turns_is_one_sided(hits: int, expected: bool) -> None:
    hand = demo(*['{"action": 1}'] * hits, *['{"action": 0}'] * (10 - hits))
    assert (
        any("90% of the turns are hit" in text for text in doubts(facts(*[hand] * 50))) is expected
    )


@pytest.mark.parametrize("agent", [BlackjackAgent(), FrozenLakeAgent()])
def test_nothing_speaks_against_what_ships(agent: Any) -> None:
    assert doubts(training_facts(training_data(agent), agent, agent.get_system_prompt())) == []
