"""A warm start as it is shown, event by event."""

from __future__ import annotations

from msgspec import structs

from llamagym_tui.config import RunConfig
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
from llamagym_tui.state.warm_start import MAX_LOSSES, Stage, Teaching, asked_for

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


def told(*events: object, begun: Teaching | None = None) -> Teaching:
    teaching = begun or Teaching()
    for event in events:
        teaching = teaching.heard(event)  # type: ignore[arg-type]
    return teaching


def progress(step: int, loss: float = 1.0) -> WarmStartProgressed:
    return WarmStartProgressed(step=step, steps=1000, loss=loss)


def test_evaluations_before_and_after_belong_to_it() -> None:
    teaching = told(BEFORE, PhaseChanged(phase="warm_starting"), progress(1), FINISHED, begun=asked_for(evaluates=True))
    assert (teaching.stage, teaching.step, teaching.before, teaching.after) == (Stage.EVALUATING, 2, BEFORE, None)
    teaching = told(AFTER, begun=teaching)
    assert (teaching.stage, teaching.after, teaching.result) == (Stage.OVER, AFTER, FINISHED)


def test_none_is_awaited_after_one_that_was_cancelled() -> None:
    cancelled = structs.replace(FINISHED, cancelled=True)
    teaching = told(BEFORE, PhaseChanged(phase="warm_starting"), cancelled, begun=asked_for(evaluates=True))
    assert (teaching.stage, teaching.before, teaching.after) == (Stage.OVER, BEFORE, None)


def test_an_evaluation_that_was_asked_for_alone_does_not() -> None:
    assert told(BEFORE) == Teaching()
    assert told(BEFORE, begun=asked_for(evaluates=False)).before is None


def test_one_that_a_run_begins_with_is_shown_too() -> None:
    teaching = told(PhaseChanged(phase="warm_starting", detail="reading the demonstrations"), progress(3, 0.7))
    assert (teaching.stage, teaching.step, teaching.steps, teaching.losses) == (Stage.TRAINING, 3, 1000, (0.7,))
    assert told(FINISHED, begun=teaching).stage is Stage.OVER


def test_a_second_one_begins_anew() -> None:
    over = told(PhaseChanged(phase="warm_starting"), progress(3), FINISHED)
    assert told(PhaseChanged(phase="warm_starting"), begun=over).losses == ()


def test_a_refusal_says_why() -> None:
    refusal = WarningRaised(message="No warm start: line 3 is torn.", refused="warm_start")
    teaching = told(PhaseChanged(phase="warm_starting"), refusal, begun=asked_for(evaluates=True))
    assert (teaching.stage, teaching.detail) == (Stage.REFUSED, "No warm start: line 3 is torn.")
    assert told(WarningRaised(message="Something else.")) == Teaching()


def test_the_end_of_the_session_is_its_end() -> None:
    assert told(progress(1), SessionFailed(message="gone")).stage is Stage.OVER


def test_losses_are_thinned_out_evenly() -> None:
    teaching = told(*[progress(step, float(step)) for step in range(1000)])
    assert len(teaching.losses) <= MAX_LOSSES
    assert teaching.losses == tuple(float(step) for step in range(0, 1000, teaching.stride))


def test_the_run_state_holds_it() -> None:
    state = reduce(initial_state(RunConfig(agent="blackjack", run_dir="/run")), progress(3))
    assert state.teaching.step == 3
