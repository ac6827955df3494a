"""Advantages over turns, worked by hand."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.learning.estimators import batch_advantages, whiten
from llamagym_tui.engine.learning.targets import explained_variance, turn_sums
from llamagym_tui.engine.policy.trajectory import Turn

REWARDS, VALUES = torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.25])
ENDS = torch.tensor([True, True])


def gae(
    rewards: torch.Tensor, values: torch.Tensor, bootstrap: float, **settings: float
) -> torch.Tensor:
    """Of a single episode of two turns."""
    return batch_advantages(rewards, values, ENDS, [2], [bootstrap], **settings)


def test_terminated_episode_has_no_bootstrap():
    found = gae(REWARDS, VALUES, 0.0, gamma=1.0, lam=1.0)
    assert found.tolist() == pytest.approx([0.5, 0.75])


def test_truncated_episode_bootstraps_last_value():
    # delta_1 = 1 + 0.9*2 - 0.25 = 2.55; delta_0 = 0.9*0.25 - 0.5 = -0.275; A_0 = -0.275 + 0.9*0.5*2.55
    found = gae(REWARDS, VALUES, 2.0, gamma=0.9, lam=0.5)
    assert found.tolist() == pytest.approx([0.8725, 2.55])


def test_what_follows_an_action_of_several_steps_is_discounted_by_each_of_them():
    # The first action takes 3 steps: delta_0 = 0.5**3 * 0.25 - 0.5, and A_0 = delta_0 + 0.5**3 * 0.5 * A_1.
    # The second takes 2: A_1 = 1 + 0.5**2 * 2 - 0.25 = 1.25.
    found = batch_advantages(REWARDS, VALUES, torch.tensor([3, 2]), [2], [2.0], gamma=0.5, lam=0.5)
    assert found.tolist() == [0.03125 - 0.5 + 0.078125, 1.25]


def test_no_advantage_leaks_into_the_episode_before():
    rewards = torch.tensor([0.0, 1.0, 2.0])
    values = torch.tensor([0.5, 0.25, 1.0])
    found = batch_advantages(rewards, values, torch.ones(3), [2, 1], [0.0, 0.0], gamma=1.0, lam=1.0)
    # A_1 = 1 - 0.25; A_0 = 0.25 - 0.5 + A_1; the second episode has 2 - 1.
    assert found.tolist() == pytest.approx([0.5, 0.75, 1.0])


def test_lambda_zero_is_the_one_step_error():
    found = gae(REWARDS, VALUES, 0.0, gamma=1.0, lam=0.0)
    assert found.tolist() == pytest.approx([-0.25, 0.75])


def test_rewards_and_values_of_different_length_are_refused():
    with pytest.raises(ValueError, match="2 rewards and 1 values"):
        gae(REWARDS, VALUES[:1], 0.0, gamma=1.0, lam=1.0)


def test_whitening_is_over_the_trained_turns_of_the_whole_batch():
    advantages, mask = torch.tensor([1.0, 3.0, 100.0]), torch.tensor([True, True, False])
    assert whiten(advantages, mask)[:2].tolist() == pytest.approx([-1.0, 1.0], abs=1e-5)


def test_whitening_equal_advantages_gives_zeros():
    assert whiten(torch.ones(4), torch.ones(4, dtype=torch.bool)).tolist() == [0, 0, 0, 0]


def test_explained_variance_of_perfect_constant_and_wrong_values():
    returns = torch.tensor([1.0, -1.0])
    assert explained_variance(returns, returns) == pytest.approx(1.0)
    assert explained_variance(torch.zeros(2), returns) == pytest.approx(0.0)
    assert explained_variance(-returns, returns) == pytest.approx(-3.0)
    assert explained_variance(torch.zeros(2), torch.ones(2)) == 0.0


def test_the_kl_of_a_turn_is_the_sum_over_its_tokens():
    turns = [Turn(1, 3, (-0.5, -0.5), 0.0, 0.0), Turn(1, 2, (-0.5,), 0.0, 0.0)]
    assert turn_sums(turns, torch.tensor([0.1, 0.2, 0.3])).tolist() == pytest.approx([0.3, 0.3])
