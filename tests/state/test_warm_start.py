"""A warm start as it is shown, event by event."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from llamagym_tui.protocol.commands import WarmStart
from llamagym_tui.protocol.events import (
    EvaluationCancelled,
    PhaseChanged,
    WarmStartEvaluated,
    WarmStartFinished,
    WarmStartProgressed,
)
from llamagym_tui.settings import WarmStartStats
from llamagym_tui.state.reduce import comparison_text
from llamagym_tui.state.warm_start import Stage, WarmStartState
from tests import fakes

BEFORE = fakes.evaluation(-0.4)
AFTER = fakes.evaluation(-0.05)
FINISHED = WarmStartFinished(
    method="sft",
    stats=WarmStartStats(
        demonstrations=20,
        tokens=180,
        steps=2,
        first_loss=1.5,
        last_loss=0.5,
        elapsed_s=3.0,
        cancelled=False,
    ),
)


def begun(*, evaluates: bool) -> WarmStartState:
    return WarmStartState().requesting(WarmStart(sft_data="demos.jsonl", episodes=300 * evaluates))


def told(*events: object, begun: WarmStartState | None = None) -> WarmStartState:
    warm_start = begun or WarmStartState()
    for event in events:
        warm_start = warm_start.after(event)  # type: ignore[arg-type]
    return warm_start


def progress(step: int, loss: float = 1.0) -> WarmStartProgressed:
    return WarmStartProgressed(step=step, steps=1000, loss=loss)


def test_the_evaluations_end_it_where_they_were_requested() -> None:
    warm_start = told(
        PhaseChanged(phase="warm_starting"), progress(1), FINISHED, begun=begun(evaluates=True)
    )
    assert (warm_start.stage, warm_start.step, warm_start.evaluated) == (Stage.EVALUATING, 2, None)
    compared = WarmStartEvaluated(before=BEFORE, after=AFTER)
    warm_start = told(compared, begun=warm_start)
    assert (warm_start.stage, warm_start.evaluated, warm_start.result) == (
        Stage.OVER,
        compared,
        FINISHED,
    )


@pytest.mark.parametrize("at", [0, 2])
def test_none_is_awaited_after_one_that_was_cancelled(at: int) -> None:
    events: list[Any] = [PhaseChanged(phase="warm_starting"), FINISHED]
    events.insert(at, EvaluationCancelled(played=3, episodes=300))
    assert told(*events, begun=begun(evaluates=True)).stage is Stage.OVER
    stats = structs.replace(FINISHED.stats, cancelled=True)
    cancelled = structs.replace(FINISHED, stats=stats)
    assert told(cancelled, begun=begun(evaluates=True)).stage is Stage.OVER


def test_what_it_has_changed_is_one_line() -> None:
    worse = structs.replace(AFTER, parse_failure_rate=0.162, greedy=False)
    # 1.96 · 0.05 = 0.098
    assert comparison_text(WarmStartEvaluated(before=BEFORE, after=worse)) == (
        "Warm start: parse failures 0.0% → 16.2%, mean return −0.400 ± 0.098 → −0.050 ± 0.098, "
        "over 300 sampled episodes each"
    )
    fewer = WarmStartEvaluated(before=BEFORE, after=structs.replace(AFTER, episodes=128))
    assert comparison_text(fewer).endswith("over 300 and 128 sampled episodes")
    assert "→ −0.050 ± 0.098 chips a hand, over" in comparison_text(fewer, "chips a hand")
    none = WarmStartEvaluated(
        before=structs.replace(BEFORE, episodes=0, elapsed_s=30.0), after=AFTER
    )
    assert comparison_text(none).endswith("cannot be compared: no episode ended in 30 s")
