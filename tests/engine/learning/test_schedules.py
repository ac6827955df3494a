"""Rates and weights over updates, worked by hand."""

from __future__ import annotations

import pytest

from llamagym_tui.engine.learning.ppo import (
    along_line,
    learning_rate,
)
from llamagym_tui.settings import PPOConfig

PLAIN = {"lr": 1.0, "lr_final": 0.2, "decay_updates": 4, "critic_warmup_updates": 0}


def rates(updates: int, **settings) -> list[float]:
    return [learning_rate(PPOConfig(**(PLAIN | settings)), update) for update in range(updates)]


def test_a_line_stays_at_the_final_value():
    assert [along_line(1.0, 0.2, done) for done in (0, 0.25, 0.5, 1, 3)] == pytest.approx(
        [1.0, 0.8, 0.6, 0.2, 0.2]
    )


def test_the_rate_goes_along_a_line_which_may_be_level():
    assert rates(6) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2])
    assert rates(6, lr_final=1.0) == [1.0] * 6


def test_while_the_critic_is_trained_alone_the_policys_rate_is_zero():
    assert rates(4, critic_warmup_updates=2) == pytest.approx([0.0, 0.0, 0.6, 0.4])
