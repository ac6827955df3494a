"""The critic in closed form: it finds a linear value, forgets old returns, and goes on from a checkpoint exactly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from llamagym_tui.engine.model.narrow import RidgeCritic


def batch(seed: int, sign: float = 1.0) -> tuple[Tensor, Tensor]:
    """4,000 states far from 0, and the return of each: 2 + 3 a - b of its coordinates, or the opposite."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.randn(4000, 5, generator=generator)
    returns = sign * (2 + 3 * offsets[:, 0] - offsets[:, 1])
    return 50 + offsets, returns


def test_it_finds_a_linear_value_of_states_that_it_has_not_seen() -> None:
    critic = RidgeCritic(5)
    critic.fit(*batch(0))
    critic.fit(*batch(1))
    states, returns = batch(2)
    # 7,600 states weigh against a penalty of 1,000: weights are 0.88 of what they should be
    errors = critic(states) - returns
    assert 1 - errors.var() / returns.var() == pytest.approx(1 - (1000 / 8600) ** 2, abs=0.01)
    assert critic(states).mean() == pytest.approx(returns.mean().item(), abs=0.05)


def test_what_is_old_weighs_less() -> None:
    critic = RidgeCritic(5)
    critic.fit(*batch(0, sign=-1.0))
    for seed in range(1, 25):
        critic.fit(*batch(seed))
    # of a sum of 25 batches with a memory of 0.9 the first weighs 0.9 ** 24 / 9.28 = 0.0086
    assert critic(torch.full((1, 5), 50.0)).item() == pytest.approx(2 * (1 - 2 * 0.0086), abs=0.01)


def test_it_goes_on_from_its_saved_state_to_the_bit() -> None:
    one, other = RidgeCritic(5), RidgeCritic(5)
    one.fit(*batch(0))
    other.load_state_dict({name: value.clone() for name, value in one.state_dict().items()})
    for critic in (one, other):
        critic.fit(*batch(1))
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.bias, other.bias)
