"""A warm start as it is shown, event by event."""

from __future__ import annotations

from msgspec import structs

from llamagym_tui.config import RunConfig
from llamagym_tui.protocol.commands import WarmStart
from llamagym_tui.protocol.events import (
    EvaluationFinished,
    PhaseChanged,
    SessionFailed,
    WarmStartFinished,
    WarmStartProgressed,
    WarningRaised,
)
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state
from llamagym_tui.state.warm_start import MAX_LOSSES, Stage, WarmStartState

BEFORE = EvaluationFinished(
    episodes=300, greedy=True, mean_return=-0.4, return_stderr=0.05, parse_failure_rate=0.0, elapsed_s=1.0
)
AFTER = EvaluationFinished(
    episodes=300, greedy=True, mean_return=-0.05, return_stderr=0.05, parse_failure_rate=0.0, elapsed_s=1.0
)
FINISHED = WarmStartFinished(
    path="/d.jsonl",
    episodes=0,
    demonstrations=20,
    tokens=180,
    steps=2,
    first_loss=1.5,
    last_loss=0.5,
    elapsed_s=3.0,
    cancelled=False,
)


def begun(*, evaluates: bool) -> WarmStartState:
    return WarmStartState().requesting(WarmStart(sft_data="demos.jsonl"), evaluates=evaluates)


def told(*events: object, begun: WarmStartState | None = None) -> WarmStartState:
    warm_start = begun or WarmStartState()
    for event in events:
        warm_start = warm_start.after(event)  # type: ignore[arg-type]
    return warm_start


def progress(step: int, loss: float = 1.0) -> WarmStartProgressed:
    return WarmStartProgressed(step=step, steps=1000, loss=loss)


def test_evaluations_before_and_after_belong_to_it() -> None:
    warm_start = told(BEFORE, PhaseChanged(phase="warm_starting"), progress(1), FINISHED, begun=begun(evaluates=True))
    assert (warm_start.stage, warm_start.step, warm_start.evaluated_before, warm_start.evaluated_after) == (
        Stage.EVALUATING,
        2,
        BEFORE,
        None,
    )
    warm_start = told(AFTER, begun=warm_start)
    assert (warm_start.stage, warm_start.evaluated_after, warm_start.result) == (Stage.OVER, AFTER, FINISHED)


def test_none_is_awaited_after_one_that_was_cancelled() -> None:
    cancelled = structs.replace(FINISHED, cancelled=True)
    warm_start = told(BEFORE, PhaseChanged(phase="warm_starting"), cancelled, begun=begun(evaluates=True))
    assert (warm_start.stage, warm_start.evaluated_before, warm_start.evaluated_after) == (Stage.OVER, BEFORE, None)


def test_an_evaluation_that_was_asked_for_alone_does_not() -> None:
    assert told(BEFORE) == WarmStartState()
    assert told(BEFORE, begun=begun(evaluates=False)).evaluated_before is None


def test_one_that_a_run_begins_with_is_shown_too() -> None:
    warm_start = told(PhaseChanged(phase="warm_starting", detail="reading the demonstrations"), progress(3, 0.7))
    assert (warm_start.stage, warm_start.step, warm_start.steps, warm_start.losses) == (Stage.TRAINING, 3, 1000, (0.7,))
    assert told(FINISHED, begun=warm_start).stage is Stage.OVER


def test_a_second_one_begins_anew() -> None:
    over = told(PhaseChanged(phase="warm_starting"), progress(3), FINISHED)
    assert told(PhaseChanged(phase="warm_starting"), begun=over).losses == ()


def test_a_refusal_says_why() -> None:
    refusal = WarningRaised(message="No warm start: line 3 is torn.", refused="warm_start")
    warm_start = told(PhaseChanged(phase="warm_starting"), refusal, begun=begun(evaluates=True))
    assert (warm_start.stage, warm_start.detail) == (Stage.REFUSED, "No warm start: line 3 is torn.")
    assert told(WarningRaised(message="Something else.")) == WarmStartState()


def test_the_end_of_the_session_is_its_end() -> None:
    assert told(progress(1), SessionFailed(message="gone")).stage is Stage.OVER


def test_losses_are_thinned_out_evenly() -> None:
    warm_start = told(*[progress(step, float(step)) for step in range(1000)])
    assert len(warm_start.losses) <= MAX_LOSSES
    assert warm_start.losses == tuple(float(step) for step in range(0, 1000, warm_start.stride))


def test_the_run_state_holds_it() -> None:
    state = reduce(initial_state(RunConfig(agent="blackjack", run_dir="/run")), progress(3))
    assert state.warm_start.step == 3
