"""A session's lifecycle: what may follow what."""

from __future__ import annotations

from typing import get_args

import pytest

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.events import Phase
from llamagym_tui.trainer.phases import entered, is_over

ENDS = ["stopped", "failed"]


@pytest.mark.parametrize(
    "path",
    [
        ["loading", "rolling_out", "updating", "rolling_out", "stopped"],
        [
            "loading",
            "rolling_out",
            "paused",
            "evaluating",
            "paused",
            "rolling_out",
            "evaluating",
            "rolling_out",
        ],
        ["loading", "stopped"],
    ],
)
def test_an_ordinary_life_is_allowed(path: list[Phase]) -> None:
    phase: Phase = "loading"
    for following in path[1:]:
        phase = entered(phase, following)
    assert phase == path[-1]


@pytest.mark.parametrize("phase", [phase for phase in get_args(Phase) if phase not in ENDS])
def test_everything_that_lives_can_fail(phase: Phase) -> None:
    assert entered(phase, "failed") == "failed"
    assert not is_over(phase)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("then", get_args(Phase))
def test_nothing_follows_an_end(end: Phase, then: Phase) -> None:
    assert is_over(end)
    with pytest.raises(LlamaGymError, match="cannot go from"):
        entered(end, then)


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("loading", "updating"),
        ("loading", "paused"),
        ("rolling_out", "rolling_out"),
        ("paused", "updating"),
        ("updating", "evaluating"),
        ("updating", "stopped"),
        ("rolling_out", "loading"),
    ],
)
def test_a_jump_raises_and_names_both_phases(now: Phase, then: Phase) -> None:
    with pytest.raises(LlamaGymError, match=f"from {now} to {then}"):
        entered(now, then)
