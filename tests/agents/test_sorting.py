"""Sorting: which words training meets, what is rewarded and mapped, and what an evaluation plays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from llamagym_tui.agents.sorting import HELD_OUT, KINDS, SHELVES, SortingAgent
from llamagym_tui.game.environment import agent_env, evaluated_agent

AGENT = SortingAgent()


def met(agent: Any, episodes: int) -> set[str]:
    """The words of some deliveries."""
    env = agent_env(agent)
    words = set()
    for seed in range(episodes):
        words.add(env.reset(seed=seed)[0])
        is_over = False
        while not is_over:
            word, _, is_over, _, _ = env.step(0)
            if not is_over:
                words.add(word)
    env.close()
    return words


def test_no_word_is_there_twice_and_a_third_of_each_kind_is_held_out() -> None:
    words = [word for of_kind in KINDS.values() for word in of_kind]
    assert len(words) == len(set(words)) == 396
    assert Counter(SHELVES[word] for word in HELD_OUT) == dict.fromkeys(range(12), 11)


def test_a_word_of_an_evaluation_is_never_met_in_training() -> None:
    assert met(AGENT, 1000) == set(SHELVES) - HELD_OUT
    assert met(evaluated_agent(AGENT), 500) == HELD_OUT
    assert AGENT.env_kwargs == {"words": "training"}, "the agent itself stays in training"


def test_the_right_shelf_earns_1_and_any_other_one_nothing_four_times() -> None:
    env = agent_env(AGENT)
    word, _ = env.reset(seed=3)
    earned = []
    ends = []
    for wrong_by in (0, 1, 0, 5):
        right = AGENT.expert(word)
        assert word in KINDS[AGENT.action_names[right]]
        word, reward, terminated, truncated, _ = env.step((right + wrong_by) % 12)
        earned.append(reward)
        ends.append((terminated, truncated))
    assert earned == [1, 0, 1, 0]
    assert ends == [(False, False)] * 3 + [(True, False)]
    assert AGENT.baselines["random"] == pytest.approx(4 / 12, abs=1e-4)
    assert AGENT.baselines["optimal"] == 4


def test_its_map_has_words_of_training_beside_those_that_it_never_meets() -> None:
    known, never_met = AGENT.policy_map().panels
    for panel, is_held_out in ((known, False), (never_met, True)):
        for kind, words in zip(panel.rows, panel.states, strict=True):
            assert all(word in KINDS[kind] for word in words)
            assert {word in HELD_OUT for word in words} == {is_held_out}
