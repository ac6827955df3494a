"""PPO's losses against hand-worked numbers and finite differences."""

from __future__ import annotations

import math

import pytest
import torch

from llamagym_tui.engine.learning.losses import (
    clipped_policy_loss,
    deviation_k3,
    value_loss,
)


def test_policy_loss_at_ratio_one_is_minus_the_advantages():
    logprobs = torch.tensor([-0.5, -1.0])
    loss = clipped_policy_loss(logprobs, logprobs, torch.tensor([2.0, -0.5]), 0.2)
    assert loss.loss.item() == pytest.approx(-1.5)
    assert loss.largest_deviation.item() == 0


def test_policy_loss_is_pessimistic_on_both_sides():
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss = clipped_policy_loss(ratio.log(), torch.zeros(4), advantages, 0.2)
    # min(1.5, 1.2) + min(-1.5, -1.2) + min(0.5, 0.8) + min(-0.5, -0.8)
    assert loss.loss.item() == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8))
    assert loss.clipped.item() == 4


def test_policy_loss_gradient_matches_finite_differences():
    old = torch.tensor([-0.7, -1.2, -0.3], dtype=torch.float64)
    logprobs = torch.tensor([-0.65, -1.3, -0.31], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: clipped_policy_loss(x, old, advantages, 0.2).loss, [logprobs]
    )
    clipped_policy_loss(logprobs, old, advantages, 0.2).loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad[0] < 0 < logprobs.grad[1]


def test_a_clipped_token_has_no_gradient_when_it_would_gain():
    logprobs = torch.tensor([math.log(1.5)], requires_grad=True)
    clipped_policy_loss(logprobs, torch.zeros(1), torch.tensor([1.0]), 0.2).loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.item() == 0


def test_k3_is_never_negative_and_unbiased_for_two_outcomes():
    old, new = torch.tensor([0.3, 0.7]), torch.tensor([0.6, 0.4])
    k3 = deviation_k3((new / old).log())
    assert (k3 >= 0).all()
    kl = (old * (old / new).log()).sum()
    assert (old * k3).sum().item() == pytest.approx(kl.item(), abs=1e-6)


def test_value_loss_is_half_the_squared_error():
    values, returns = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0])
    assert value_loss(values, returns).item() == pytest.approx(2.5)
