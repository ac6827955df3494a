"""Batches that cut long episodes off: when they come, how they are completed, and what counts as one episode."""

from __future__ import annotations

import math

import pytest
import torch

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.trajectory import Segment, Trajectory, Turn
from llamagym_tui.trainer.probes.inspect_reply import ReplyInspector
from llamagym_tui.trainer.rollout.failures import EpisodeFault
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


def test_every_environment_plays_on_however_few_turns_of_each_fill_a_batch(cutting):
    rollout = cutting(EndlessAgent(), n_envs=20, batch_turns=40)
    assert [len(batch_of(rollout)) for _ in range(2)] == [20, 20]


def test_a_cut_episode_is_completed_by_the_value_of_the_observation_that_it_goes_on_from(cutting):
    rollout = cutting(EndlessAgent())
    torch.nn.init.normal_(rollout.policy.model.v_head.out.weight)
    parts = batch_of(rollout)
    bootstraps = rollout.policy.bootstrap_values(parts)
    rollout.step()
    values = [slot.under_way.segments[-1].turns[0].value for slot in rollout.slots]
    assert bootstraps == pytest.approx(values, abs=1e-5)
    assert bootstraps[0] != pytest.approx(parts[0].turns[-1].value)


def test_figures_count_an_episode_whole_in_the_batch_in_which_it_ends(cutting):
    rollout = cutting(FiveAgent())
    ppo = PPO(rollout.policy, PPOConfig(reward_scale=None, gamma=0.5))
    first = ppo.update(batch_of(rollout))
    assert (first.turns, first.episodes) == (6, 0)
    assert math.isnan(first.mean_return)
    assert ppo.return_moments.turns == 0
    second = ppo.update(batch_of(rollout))
    assert (second.turns, second.episodes, second.mean_return) == (6, 2, 1.0)
    # Of both episodes 1, 1/2, 1/4, 1/8 and 1/16, from the last turn to the first.
    assert ppo.return_moments.turns == 10
    assert ppo.return_moments.mean == pytest.approx(31 / 16 / 5)
    assert rollout.take_batch() == []


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


def test_what_is_left_of_inference_mode_holds_up_no_cut(cutting):
    rollout = cutting(EndlessAgent(), n_envs=3)
    rollout.step()
    rollout.mode = "inference"
    rollout._drop(rollout.slots[0], EpisodeFault("it failed"))
    rollout.mode = "train"
    (part,) = batch_of(rollout)
    assert (part.episode, len(part.turns)) == (3, 6)
    assert [slot.counts.length for slot in rollout.slots] == [6, 7, 7]
    rollout.forget_caches()
    assert len(batch_of(rollout)[0].earlier) == 6


def test_a_persons_turn_in_an_earlier_batch_keeps_an_episode_out_of_the_mean():
    turns = [
        Turn(start=0, end=1, logprobs=(0.0,), value=0.0, reward=reward) for reward in (1.0, 2.0)
    ]
    persons = Turn(start=0, end=1, logprobs=(0.0,), value=0.0, reward=4.0, is_trained=False)
    assert Trajectory([Segment((), turns=turns)], "terminated").is_own
    assert not Trajectory([Segment((), turns=turns)], "terminated", earlier=[persons]).is_own
    assert (
        Trajectory([Segment((), turns=turns)], "terminated", earlier=[persons]).episode_return
        == 7.0
    )


def test_each_turn_of_a_cut_episode_is_inspected_with_what_its_own_update_made_of_it(cutting):
    rollout = cutting(EndlessAgent())
    ppo = PPO(rollout.policy, PPOConfig())
    inspector = ReplyInspector(rollout.policy, ppo, rollout)
    for _ in range(2):
        ppo.update(batch_of(rollout))
    rollout.step()
    found = [inspector.inspect(0, turn) for turn in range(8)]
    assert [each.stage for each in found[:7]] == ["trained"] * 6 + ["under_way"]
    first, second = (list(batch.targets.returns) for batch in ppo.used)
    for inspected, targets in zip(found[:6], [first] * 3 + [second] * 3, strict=True):
        assert inspected.tokens[0].decision.target in targets
    assert [each.turn for each in found[:7]] == list(range(7))
    assert found[7].why_not == "Reply 8 has not come yet."
    ppo.used.clear()
    assert "are not kept" in inspector.inspect(0, 2).why_not
