"""An update that is stopped: it ends after the present optimizer step and keeps the steps made."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning.ppo import PPO
from tests.engine.learning.test_ppo import QUICK, collect, weights

FOUR = replaced(QUICK, mini_batch_size=16, epochs=3)
"""Four minibatches an epoch of 64 turns."""


def stopped_after(make_policy, minibatches: int):
    """A policy whose update was stopped after so many minibatches, its figures, and the progress that it reported."""
    policy = make_policy(seed=1)
    ppo, calls, progress = PPO(policy, FOUR, seed=1), [], []

    def should_stop() -> bool:
        calls.append(len(progress))
        return len(progress) >= minibatches

    stats = ppo.update(
        collect(policy), should_stop=should_stop, progress=lambda *epoch: progress.append(epoch)
    )
    assert (ppo.updates, policy.version) == (1, 1)
    return policy, stats, progress


@pytest.mark.parametrize(
    ("minibatches", "epochs"), [(1, 0.25), (3, 0.75), (4, 1.0), (6, 1.5), (99, 3.0)]
)
def test_a_stopped_update_reports_how_much_of_it_was_made(make_policy, minibatches, epochs):
    _, stats, progress = stopped_after(make_policy, minibatches)
    assert len(progress) == min(minibatches, 12)
    assert stats.first_ratio < 1e-3


def test_steps_are_reported_before_they_are_made(make_policy):
    _, _, progress = stopped_after(make_policy, 99)
    assert progress == [(made, 12) for made in range(12)]


def test_at_least_one_minibatch_is_made_and_its_steps_stay(make_policy):
    untouched = weights(make_policy(seed=1))
    never, _, _ = stopped_after(make_policy, 0)
    once, _, _ = stopped_after(make_policy, 1)
    assert torch.equal(weights(never), weights(once))
    assert not torch.equal(weights(once), untouched)


def test_a_pass_that_was_stopped_at_its_end_is_the_same_as_fewer_passes(make_policy):
    policy, _, _ = stopped_after(make_policy, 4)
    whole = make_policy(seed=1)
    PPO(whole, replaced(FOUR, epochs=1), seed=1).update(collect(whole))
    assert torch.equal(weights(policy), weights(whole))
