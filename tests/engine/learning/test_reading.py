"""bfloat16 is read in where it is exact enough and faster, by error and speed that are worked by hand here."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.learning.reading import chosen, error_in_directions


def test_error_counts_in_units_of_the_spread_between_states() -> None:
    # All have (0, 1000) in common and spread by 2 along the first axis.
    exact = torch.tensor([[2.0, 1000.0], [-2.0, 1000.0]])
    off = exact + torch.tensor([[0.3, 50.0], [-0.3, 50.0]])  # the second axis is not looked at
    assert error_in_directions(exact, off) == pytest.approx(0.15, abs=1e-3)


@pytest.mark.parametrize(
    ("error", "times", "kind"),
    [
        (0.15, 1.2, "bfloat16"),
        (0.16, 3.0, "float32"),  # too coarse
        (0.01, 1.1, "float32"),  # not worth it
        (float("nan"), 3.0, "float32"),
    ],
)
def test_what_is_coarse_or_hardly_faster_is_left(error: float, times: float, kind: str) -> None:
    assert chosen(error, times).kind == kind
