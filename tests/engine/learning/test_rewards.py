"""The reward that PPO sees, worked by hand."""

from __future__ import annotations

import math
import statistics

import pytest

from llamagym_tui.engine.learning.rewards import ReturnMoments, discounted_returns, turn_rewards
from llamagym_tui.engine.policy.trajectory import Segment, Trajectory, Turn


def a_turn(reward: float, **fields) -> Turn:
    return Turn(start=0, end=1, logprobs=(0.0,), value=0.0, reward=reward, **fields)


def test_moments_of_batches_are_those_of_all_episodes_together():
    batches = [[1.0, 3.0], [10.0], [], [-4.0, 0.0, 2.0]]
    moments = ReturnMoments()
    for batch in batches:
        moments = moments.with_returns(batch)
    together = [value for batch in batches for value in batch]
    assert moments.turns == 6
    assert moments.mean == pytest.approx(statistics.mean(together))
    assert moments.std == pytest.approx(statistics.pstdev(together))


def test_the_scale_gives_returns_a_standard_deviation_of_one():
    moments = ReturnMoments().with_returns([0.0, 10.0])
    assert moments.std == 5.0
    assert moments.scale == 0.2


def test_the_scale_is_one_while_returns_are_all_the_same_and_infinite_ones_are_left_out():
    assert ReturnMoments().scale == ReturnMoments().with_returns([7.0, 7.0]).scale == 1.0
    assert ReturnMoments().with_returns([math.inf, 1.0, math.nan]) == ReturnMoments(1, 1.0, 0.0)


def test_discounted_returns_count_turns_across_segments_and_batches_and_all_their_steps():
    segments = [Segment((), turns=[a_turn(1.0), a_turn(2.0)]), Segment((), turns=[a_turn(4.0)])]
    assert discounted_returns(Trajectory(segments, "terminated"), 0.5) == [4.0, 4.0, 3.0]
    slow = [a_turn(8.0, steps=3)]
    assert (
        discounted_returns(Trajectory(segments, "terminated", earlier=slow), 0.5)[-1] == 8 + 3 / 8
    )


def test_the_penalty_is_not_scaled():
    turns = [a_turn(4.0), a_turn(-2.0, parse_failed=True)]
    assert turn_rewards(turns, scale=0.25, parse_penalty=0.5).tolist() == [1.0, -1.0]
