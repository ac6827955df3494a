"""The directions in which states differ: what they leave out, how they are scaled, and that noise is not."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.model.whitening import constant, whitening


def test_directions_leave_out_the_common_states_and_spread_by_one() -> None:
    torch.manual_seed(0)
    common = torch.randn(2, 8) * 100
    spreads = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.4, 0.3, 0.2, 0.1])
    states = torch.randn(500, 8) * spreads + common[0]
    found = whitening(states, common, [], 3)
    seen = states @ found.T
    # rounding in fp32 of states of about 100, scaled by up to some ten times
    assert (common @ found.T).abs().max() < 0.01
    assert seen.mean(0).abs().max() < 0.01
    assert torch.allclose(seen.var(0, unbiased=False), torch.ones(3), atol=0.01)


def test_what_hardly_differs_is_scaled_up_no_further_than_a_hundredth_of_the_largest() -> None:
    states = torch.tensor(
        [[5.0, 10.0, 0.0], [5.0, -10.0, 0.0], [5.0, 0.0, 0.01], [5.0, 0.0, -0.01]]
    )
    first, second = (states @ whitening(states, torch.empty(0, 3), [], 2).T).T
    # Variances are 50 and 0.00005, and a hundredth of the largest spread, squared, is 0.005: 1 / 1.0001 and 1 / 101.
    assert first.var(unbiased=False) == pytest.approx(1 / 1.0001, rel=1e-4)
    assert second.var(unbiased=False) == pytest.approx(1 / 101, rel=1e-3)


@pytest.mark.parametrize(("least", "directions"), [(0.44, 2), (0.45, 1)])
def test_what_spreads_by_less_than_a_share_of_the_whole_spread_is_left_out(
    least: float, directions: int
) -> None:
    # Spreads of 2 and 1 along two axes, so of sqrt(5) in all: 1 / sqrt(5) is 0.447. The mean of 9 is no spread.
    states = torch.tensor([[9.0, 2.0, 1.0], [9.0, 2.0, -1.0], [9.0, -2.0, 1.0], [9.0, -2.0, -1.0]])
    assert len(whitening(states, torch.empty(0, 3), [], 3, least)) == directions


def test_what_differs_by_more_at_other_places_is_seen_little() -> None:
    # Along the second axis the states spread by 1 and those of another place by 30, along the third neither.
    states = torch.tensor([[2.0, 1.0, 5.0], [2.0, -1.0, 5.0], [-2.0, 1.0, 5.0], [-2.0, -1.0, 5.0]])
    other = torch.tensor([[0.0, 30.0, 0.0], [0.0, -30.0, 0.0]])
    found = whitening(states, torch.zeros(1, 3), [other], 2)
    first, second = (states @ found.T).var(0, unbiased=False).tolist()
    # 1 / (1 + 900 / 9), and the floor, (0.01 * 2)^2, once
    assert first == pytest.approx(4 / (4 + 0.0004), rel=1e-4)
    assert second == pytest.approx(1 / (1 + 100 + 0.0004), rel=1e-4)
    elsewhere = (other @ found.T).var(0, unbiased=False)
    assert elsewhere[0] == pytest.approx(0.0, abs=1e-6)
    assert elsewhere[1] == pytest.approx(900 / 101.0004, rel=1e-4)  # at most 3^2


def test_a_common_state_that_is_named_twice_takes_nothing_else_out() -> None:
    torch.manual_seed(1)
    states = torch.randn(50, 4) + torch.tensor([9.0, 0.0, 0.0, 0.0])
    once = whitening(states, torch.empty(0, 4), [], 4)
    twice = whitening(states, states.mean(0, keepdim=True) * (1 + 1e-7), [], 4)
    assert len(once) == len(twice) == 3
    assert torch.allclose(once.T @ once, twice.T @ twice, atol=1e-4)


def test_one_direction_is_one_at_a_place_and_nothing_at_the_others() -> None:
    mean = torch.tensor([3.0, 4.0, 0.0])
    others = torch.tensor([[3.0, 0.0, 0.0], [6.0, 0.0, 0.0]])
    found = constant(mean, others, [])
    assert torch.allclose(found, torch.tensor([0.0, 0.25, 0.0]))
    assert constant(mean, others[:0], []).tolist() == pytest.approx([0.12, 0.16, 0.0])
    assert not constant(others[1], others, []).any()  # it is nothing of its own


def test_that_direction_is_one_in_which_nuisances_hardly_differ() -> None:
    mean = torch.tensor([3.0, 4.0, 0.0])
    prompts = torch.tensor([[0.0, 2.0, 0.0], [0.0, -2.0, 0.0]])
    found = constant(mean, torch.empty(0, 3), [prompts])
    # (floor + 0) and (floor + 4) along the first two axes, with a floor of (0.01 * 5)^2: weights 3 / 0.0025, 4 / 4.0025
    weights = torch.tensor([3 / 0.0025, 4 / 4.0025, 0.0])
    assert torch.allclose(found, weights / (weights @ mean), rtol=1e-4)
    assert found @ mean == pytest.approx(1.0)
    assert (prompts @ found).abs().max() < 0.001
