"""The episode that an update moved most, by figures worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.engine.learning.inspection import UsedBatch, moved_most
from llamagym_tui.engine.learning.targets import Targets
from tests.engine.learning.test_inspection import HAND, Course


@pytest.fixture
def course(make_policy):
    return Course(make_policy())


def hand_worked(course: Course, advantages: list[float], ratios: list[float]):
    """Two episodes of two turns each; every token of a turn has its ratio. The batch, tokens of each turn, and it."""
    course.fill()
    two = course.rollout.take_batch()[:2]
    lengths = [len(turn.logprobs) for trajectory in two for turn in trajectory.turns]
    zeros = torch.zeros(sum(lengths))
    targets = Targets(torch.tensor(advantages), zeros, zeros, zeros, zeros.bool(), zeros, None)
    used = UsedBatch(two, targets, "turn", 0.1, 1.0, "ppo")
    logs = [
        math.log(ratio)
        for ratio, length in zip(ratios, lengths, strict=True)
        for _ in range(length)
    ]
    half = len(logs) // 2
    forwards = [  # in two forwards, out of order, after an epoch in which nothing had moved yet
        (torch.arange(len(logs)), zeros),
        (torch.arange(half, len(logs)), torch.tensor(logs[half:])),
        (torch.arange(half), torch.tensor(logs[:half])),
    ]
    return two, lengths, moved_most(course.policy.chat, used, forwards)


def test_the_episode_with_the_largest_sum_of_advantage_times_ratio_change_moved_most(course):
    two, tokens, found = hand_worked(course, [1.0, -0.5, 2.0, 0.0], [1.1, 0.8, 1.5, 9.0])
    of_first = 1.0 * 0.1 * tokens[0] + 0.5 * 0.2 * tokens[1]
    of_second = (
        2.0 * 0.5 * tokens[2]
    )  # nothing by a turn without advantage, however far its ratio went
    assert (found.episode, found.episode_return) == (two[1].episode, 1.0)
    assert found.moved == pytest.approx(of_second, rel=1e-4)
    assert found.of_batch == pytest.approx(of_first + of_second, rel=1e-4)
    sampled, segment = two[1].turns[0], two[1].segments[0]
    assert (found.turn, found.advantage, found.observation) == (0, 2.0, "Steps: 0.")
    assert found.before == pytest.approx(math.exp(sum(sampled.logprobs)), rel=1e-4)
    assert found.after == pytest.approx(found.before * 1.5 ** tokens[2], rel=1e-3)
    assert found.reply == course.policy.chat.text(segment.ids[sampled.start : sampled.end])


def test_the_turn_that_is_shown_is_the_one_that_was_moved_most(course):
    two, _, found = hand_worked(course, [0.1, -3.0, 0.0, 0.0], [1.1, 0.9, 1.0, 1.0])
    assert (found.episode, found.turn, found.advantage) == (two[0].episode, 1, -3.0)
    assert found.observation == "Steps: 1."


@pytest.mark.parametrize("ratios", [[1.0] * 4, [math.inf, 1.0, 1.0, 1.0]])
def test_where_nothing_was_moved_or_it_is_no_number_there_is_none(course, ratios):
    assert hand_worked(course, [1.0] * 4, ratios)[2] is None


def test_with_token_credit_each_token_has_its_own_advantage(course):
    course.fill()
    [one], zeros = course.rollout.take_batch()[:1], torch.zeros(99)
    own = torch.zeros(sum(len(turn.logprobs) for turn in one.turns))
    own[0] = 1.0
    used = UsedBatch(
        [one],
        Targets(own, zeros, zeros, zeros, zeros.bool(), zeros, None),
        "token",
        0.1,
        1.0,
        "ppo",
    )
    found = moved_most(
        course.policy.chat, used, [(torch.arange(len(own)), torch.full_like(own, math.log(1.25)))]
    )
    assert found is not None
    assert found.moved == pytest.approx(0.25, rel=1e-4)


def test_an_update_takes_ratios_from_its_last_epoch_and_none_of_its_own(make_policy):
    """One epoch in one minibatch scores nothing after a step; in two epochs every episode was moved by the first."""
    course = Course(make_policy(), replace(HAND, epochs=1, mini_batch_size=99))
    course.update()
    assert course.ppo.moved is None or course.ppo.moved.moved < 1e-3
    course.ppo.config = replace(HAND, epochs=2, mini_batch_size=99)
    batch = course.update()
    found = course.ppo.moved
    assert found.moved > 0.01
    trajectory = next(each for each in batch if each.episode == found.episode)
    assert found.before == pytest.approx(
        math.exp(sum(trajectory.turns[found.turn].logprobs)), rel=1e-4
    )
    assert abs(found.after / found.before - 1) > 0.01


def test_while_the_critic_warms_up_no_episode_was_moved(make_policy):
    course = Course(make_policy(), replace(HAND, critic_warmup_updates=1))
    course.update()
    assert course.ppo.moved is None
    course.update()
    assert course.ppo.moved.episode is not None
