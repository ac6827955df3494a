"""Rates and weights over updates, worked by hand."""

from __future__ import annotations

import pytest

from llamagym_tui.engine.learning.ppo import scheduled
from llamagym_tui.settings import PPOConfig


def rates(updates: int, **settings) -> list[float]:
    config = PPOConfig(**({"lr": 1.0, "lr_final": 0.2, "decay_updates": 4} | settings))
    return [scheduled(config, "lr", update) for update in range(updates)]


def test_the_rate_goes_along_a_line_which_may_be_level_and_stays_at_its_final_value():
    assert rates(6) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2])
    assert rates(6, lr_final=1.0) == [1.0] * 6
