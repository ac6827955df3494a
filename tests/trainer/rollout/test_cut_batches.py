"""Batches that cut long episodes off: when they come, how they are completed, and what counts as one episode."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.policy.trajectory import Trajectory
from tests.toy_env import CountAgent, EndlessAgent


class FiveAgent(CountAgent):
    history = 0
    env_kwargs = {"length": 5}  # noqa: RUF012


@pytest.fixture
def cutting(make_rollout):
    def make(agent: CountAgent, history: int | None = 0, **changes):
        rollout, _ = make_rollout(
            agent, **{"cuts_episodes": True, "batch_turns": 6, "max_turns": 50} | changes
        )
        rollout.policy.history = history
        return rollout

    return make


def batch_of(rollout) -> list[Trajectory]:
    for _ in range(50):
        rollout.step()
        if rollout.batch_ready:
            return rollout.take_batch()
    raise AssertionError("the batch never filled")


def test_a_batch_is_full_after_its_turns_however_long_episodes_are_and_they_go_on_in_the_next(
    cutting,
):
    rollout = cutting(EndlessAgent())
    first, second = batch_of(rollout), batch_of(rollout)
    assert rollout.env_steps == 12
    assert {(each.end, each.goes_on, len(each.turns), len(each.earlier)) for each in first} == {
        ("truncated", True, 3, 0)
    }
    assert [len(each.earlier) for each in second] == [3, 3]
    assert [each.episode for each in first] == [each.episode for each in second] == [0, 1]
    prompts = [rollout.policy.chat.tokenizer.decode(each.segments[0].ids) for each in second]
    assert all("Steps: 3." in prompt for prompt in prompts)


def test_a_cut_episode_is_completed_by_the_value_of_the_observation_that_it_goes_on_from(cutting):
    rollout = cutting(EndlessAgent())
    torch.nn.init.normal_(rollout.policy.model.v_head.out.weight)
    parts = batch_of(rollout)
    bootstraps = rollout.policy.bootstrap_values(parts)
    rollout.step()
    values = [slot.under_way.segments[-1].turns[0].value for slot in rollout.slots]
    assert bootstraps == pytest.approx(values, abs=1e-5)
    assert bootstraps[0] != pytest.approx(parts[0].turns[-1].value)


def test_where_prompts_have_earlier_turns_episodes_are_finished_first(cutting):
    rollout = cutting(FiveAgent(), history=1)
    assert {(each.end, len(each.turns)) for each in batch_of(rollout)} == {("terminated", 5)}


def test_a_batch_is_not_full_of_turns_that_a_person_has_played(cutting):
    rollout = cutting(EndlessAgent(), n_envs=1, batch_turns=2)
    rollout.begin_episodes()
    rollout.take_wheel()
    for turn in range(3):
        rollout.step()
        rollout.act(0, turn, 1)
        rollout.step()
    assert not rollout.batch_ready, "its update would have nothing to train on"
    rollout.wheel.let_go()
    (part,) = batch_of(rollout)
    assert [turn.is_trained for turn in part.turns] == [False, False, False, True, True]
