"""The directions in which states differ: what they leave out, and their scale."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from llamagym_tui.engine.learning.directions import KEPT_BACK, Read, measure, whitening
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.tokens.token_tree import TokenTree


def test_directions_leave_out_the_common_states_and_spread_by_one() -> None:
    torch.manual_seed(0)
    common = torch.randn(2, 8) * 100
    spreads = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.4, 0.3, 0.2, 0.1])
    states = torch.randn(500, 8) * spreads + common[0]
    found = whitening(states, common, 3)
    seen = states @ found.T
    # rounding in fp32 of states of about 100, scaled by up to some ten times
    assert (common @ found.T).abs().max() < 0.01
    assert seen.mean(0).abs().max() < 0.01
    # Spreads of 3, 2 and about 1, of which a tenth of 3 is taken as rounding: 9 / 9.09, 4 / 4.09 and about 1 / 1.09.
    expected = torch.tensor([9 / 9.09, 4 / 4.09, 1 / 1.09])
    assert torch.allclose(seen.var(0, unbiased=False), expected, atol=0.03)


def test_what_hardly_differs_is_scaled_up_no_further_than_a_tenth_of_the_largest() -> None:
    states = torch.tensor(
        [[5.0, 10.0, 0.0], [5.0, -10.0, 0.0], [5.0, 0.0, 0.01], [5.0, 0.0, -0.01]]
    )
    first, second = (states @ whitening(states, torch.empty(0, 3), 2).T).T
    # Variances are 50 and 0.00005, and a tenth of the largest spread, squared, is 0.5: 1 / 1.01 and 1 / 10001.
    assert first.var(unbiased=False) == pytest.approx(1 / 1.01, rel=1e-4)
    assert second.var(unbiased=False) == pytest.approx(1 / 10_001, rel=1e-3)


@pytest.mark.parametrize(("least", "directions"), [(0.44, 2), (0.45, 1)])
def test_what_spreads_by_less_than_a_share_of_the_whole_spread_is_left_out(
    least: float, directions: int
) -> None:
    # Spreads of 2 and 1 along two axes, so of sqrt(5) in all: 1 / sqrt(5) is 0.447. The mean of 9 is no spread.
    states = torch.tensor([[9.0, 2.0, 1.0], [9.0, 2.0, -1.0], [9.0, -2.0, 1.0], [9.0, -2.0, -1.0]])
    assert len(whitening(states, torch.empty(0, 3), 3, least)) == directions


def test_a_common_state_that_is_named_twice_takes_nothing_else_out() -> None:
    torch.manual_seed(1)
    states = torch.randn(50, 4) + torch.tensor([9.0, 0.0, 0.0, 0.0])
    once = whitening(states, torch.empty(0, 4), 4)
    twice = whitening(states, states.mean(0, keepdim=True) * (1 + 1e-7), 4)
    assert len(once) == len(twice) == 3
    assert torch.allclose(once.T @ once, twice.T @ twice, atol=1e-4)


def read(wording: int, states: list[list[float]]) -> Read:
    """Prompts after which the replies 1 and 2 part."""
    tree = TokenTree()
    for reply in (1, 2):
        tree.insert([reply])
    hidden = torch.tensor(states)[:, None].expand(-1, 1 + len(tree), -1)
    return Read(tree, wording, Encoded(None, hidden))  # type: ignore[arg-type]


def test_the_mean_of_each_wording_is_left_out_also_of_one_that_is_only_read() -> None:
    # Hands stand apart by 2 along the third axis, wordings by 8 along the second, and the first is common to all.
    played = read(0, [[10.0, 4.0, 1.0, 0.0], [10.0, 4.0, -1.0, 0.0]])
    only_read = read(KEPT_BACK, [[10.0, -4.0, 1.0, 0.0], [10.0, -4.0, -1.0, 0.0]])
    down = torch.zeros(4, 4)
    measure(down, [played, only_read])
    constant, *others = down
    assert constant.tolist() == pytest.approx([0.1, 0.0, 0.0, 0.0])
    # A spread of 1, and a tenth of it beside: 1 / sqrt(1.01).
    assert others[0].abs().tolist() == pytest.approx([0.0, 0.0, 0.99504, 0.0], abs=1e-4)
    assert not torch.stack(others[1:]).any()


def test_a_wording_that_is_not_told_apart_is_a_difference_between_states() -> None:
    as_one = [[10.0, 4.0, 1.0, 0.0], [10.0, 4.0, -1.0, 0.0]]
    as_other = [[10.0, -4.0, 1.0, 0.0], [10.0, -4.0, -1.0, 0.0]]
    down = torch.zeros(4, 4)
    measure(down, [read(0, as_one + as_other)])
    # A spread of 4, and a tenth of it beside: 0.25 / sqrt(1.01).
    assert down[1].abs().tolist() == pytest.approx([0.0, 0.24876, 0.0, 0.0], abs=1e-4)


def test_nothing_is_read_once_all_directions_are_known() -> None:
    def unread() -> Iterator[Read]:
        raise AssertionError("read")
        yield

    measure(torch.ones(2, 4), unread())
