"""The size of steps follows the KL: smaller where they went too far, undone where they went much too far."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from llamagym_tui.engine.learning.pace import LEAST, Pace


@pytest.mark.parametrize(
    ("kl", "factor"),
    [(0.041, 0.3 / 1.5), (0.039, 0.3), (0.011, 0.3), (0.009, 0.3 * 1.5), (float("inf"), 0.2)],
)
def test_steps_become_smaller_beyond_twice_the_kl_and_larger_below_half(kl, factor) -> None:
    pace = Pace([], 0.3)
    pace.follow(kl, 0.02)
    assert pace.factor == pytest.approx(factor)


def test_the_scheduled_rate_is_the_largest_and_steps_never_vanish() -> None:
    pace = Pace([], 0.9)
    pace.follow(0.0, 0.02)
    assert pace.factor == 1.0
    pace = Pace([], LEAST * 1.1)
    pace.follow(1.0, 0.02)
    assert pace.factor == LEAST


@pytest.mark.parametrize("kl", [0.0601, float("nan"), float("inf")])
def test_a_step_that_went_much_too_far_is_undone_once(kl) -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    pace = Pace([weight])
    assert not pace.take_back(kl, 0.02)  # there was no step yet
    pace.keep()
    with torch.no_grad():
        weight += 5.0
    assert not pace.take_back(0.0599, 0.02)
    assert weight.tolist() == [6.0, 7.0]
    assert pace.take_back(kl, 0.02)
    assert weight.tolist() == [1.0, 2.0]
    assert pace.factor == 0.5
    assert not pace.take_back(kl, 0.02)
    pace.keep()
    pace.end()  # the next update's batch is sampled by the policy of now
    assert not pace.take_back(kl, 0.02)
