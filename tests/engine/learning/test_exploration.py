"""Bonuses for what was seldom seen: counted and credited by hand, and in no return that is shown."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning import rewards as module
from llamagym_tui.engine.learning.checkpoint import load_checkpoint, save_checkpoint
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.rewards import turn_bonuses
from tests.engine.learning.test_distinguished import played
from tests.engine.learning.test_update import STILL

EXPLORING = replaced(STILL, exploration_coef=0.5, whiten_advantages=False)


@pytest.mark.parametrize("history", [None, 0])
def test_a_turn_earns_by_how_often_the_observation_that_it_led_to_was_seen(make_policy, history):
    policy, counts = make_policy(), Counter[int]()
    policy.history = history
    # Seen: start 4 times, hall 4 times, attic once. The last turn of an episode leads nowhere.
    batch = played(
        policy, ["start", "hall", "attic"], ["start", "hall", "hall"], ["start", "hall"], ["start"]
    )
    assert turn_bonuses(policy.chat, batch, counts, coef=0.5).tolist() == [
        0.25, 0.5, 0.0, 0.25, 0.25, 0.0, 0.25, 0.0, 0.0,
    ]  # fmt: skip
    # The attic has been seen 4 times now.
    again = played(policy, ["start", "attic", "attic", "attic"], prompt="Another prompt.")
    assert turn_bonuses(policy.chat, again, counts, coef=0.5).tolist() == [0.25, 0.25, 0.25, 0.0]
    assert sorted(counts.values()) == [4, 4, 5]


def test_the_bonus_is_in_what_is_trained_on_and_in_no_reward_return_or_scale(make_policy):
    policy = make_policy()
    batch = played(policy, ["start", "hall", "attic"], ["start"])
    plain, ppo = PPO(policy, replaced(EXPLORING, exploration_coef=0.0)), PPO(policy, EXPLORING)
    before, stats = plain.update(batch), ppo.update(batch)
    # Each episode from its turns on; all rewards are 0. 0.5 for the hall, 0.5 for the attic.
    assert ppo.used[-1].targets.returns.tolist() == pytest.approx([1.0, 0.5, 0.0, 0.0])
    assert plain.used[-1].targets.returns.tolist() == [0.0] * 4
    assert (stats.exploration_bonus, before.exploration_bonus) == (0.25, 0.0)
    assert [turn.reward for each in batch for turn in each.turns] == [0.0] * 4
    assert (stats.mean_return, stats.return_std, ppo.return_moments) == (
        0.0,
        0.0,
        plain.return_moments,
    )
    assert not plain.observation_counts


def test_counts_are_bounded_and_those_that_share_one_earn_less(make_policy, monkeypatch):
    policy, counts = make_policy(), Counter[int]()
    monkeypatch.setattr(module, "COUNTS", 3)
    found = turn_bonuses(
        policy.chat, played(policy, [f"room {n}" for n in range(12)]), counts, coef=1.0
    )
    assert len(counts) == 3
    assert sum(counts.values()) == 12
    assert all(bonus < 1.0 for bonus in found)


def test_counts_are_the_same_in_every_process(make_policy, monkeypatch):
    policy, counts = make_policy(), Counter[int]()
    monkeypatch.setattr(module, "observation_ids", lambda chat, segment: [(7, 8)])
    turn_bonuses(policy.chat, played(policy, ["x"]), counts, coef=1.0)
    assert counts == {12447: 1}


def test_a_resumed_learner_goes_on_counting(make_policy, tmp_path):
    policy = make_policy()
    ppo, resumed = PPO(policy, EXPLORING), PPO(policy, EXPLORING)
    batch = played(policy, ["start", "hall"])
    assert ppo.update(batch).exploration_bonus == 0.25
    save_checkpoint(tmp_path, policy, ppo, {})
    load_checkpoint(tmp_path, policy, resumed)
    assert resumed.observation_counts == ppo.observation_counts
    found = [resumed.update(batch).exploration_bonus for _ in range(3)]
    assert found == pytest.approx([0.5 * n**-0.5 / 2 for n in (2, 3, 4)])
