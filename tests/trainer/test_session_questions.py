"""Questions about the policy, and evaluations that are cancelled, while a session does something long."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.game.chat import user
from llamagym_tui.protocol.commands import CancelEvaluation, Evaluate, Pause, ProbeActions, Stop
from llamagym_tui.protocol.events import (
    ConversationProbed,
    EvaluationCancelled,
    EvaluationFinished,
    PhaseChanged,
    UpdateFinished,
)
from llamagym_tui.trainer.probes.action_probabilities import ActionProbes
from tests.fake_parts import Stage, evaluated

QUESTION = ProbeActions(ticket=7, messages=[user("Call.")])


@pytest.fixture(autouse=True)
def probed_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(probing: ActionProbes, question: ProbeActions) -> ConversationProbed:
        return ConversationProbed(ticket=question.ticket, names=["heads"], shares=[1.0])

    monkeypatch.setattr(ActionProbes, "probe_conversation", answer)


def test_a_question_is_answered_before_the_next_step(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.script = {1: [QUESTION]}
    stage.session.run()
    [answer] = stage.of(ConversationProbed)
    assert (answer.ticket, answer.at_s) == (7, 0.125)


def test_a_question_is_answered_between_two_steps_of_an_update(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8)
    ask_at_second = {1: lambda: stage.command_queue.put(QUESTION)}
    stage.also_before_step = lambda rollout: setattr(
        stage.learner, "before_minibatch", lambda number: ask_at_second.get(number, lambda: None)()
    )
    stage.session.run()
    [answer], [update] = stage.of(ConversationProbed), stage.of(UpdateFinished)
    assert answer.at_s == 0.5 + 0.25
    assert stage.events.index(answer) < stage.events.index(update)
    assert update.stats.epochs == 1


def test_a_question_is_answered_while_a_run_is_paused(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.script = {1: [Pause(), QUESTION, Stop()]}
    stage.session.run()
    assert [event.ticket for event in stage.of(ConversationProbed)] == [7]


def test_a_question_is_answered_during_an_evaluation_which_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.script = {2: [Evaluate(episodes=40), QUESTION, Stop()]}
    stage.session.run()
    assert [event.ticket for event in stage.of(ConversationProbed)] == [7]


def test_a_cancelled_evaluation_has_no_result_and_the_run_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.script = {2: [Evaluate(episodes=10**9), CancelEvaluation()]}
    stage.session.run()
    assert stage.of(EvaluationFinished) == []
    [cancelled] = stage.of(EvaluationCancelled)
    assert (cancelled.played < 10**9, cancelled.episodes) == (True, 10**9)
    assert [event.phase for event in stage.of(PhaseChanged)][-1] == "stopped"
    assert len(stage.of(UpdateFinished)) == 1


def test_an_evaluation_cancelled_between_two_rounds_of_episodes_has_no_result(
    tmp_path: Path, monkeypatch
) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.script = {2: [Evaluate(episodes=10**9), CancelEvaluation()]}
    evaluate = type(stage.builders).evaluate
    none_is_under_way = lambda *parts, **settings: evaluate(*parts, **settings) or evaluated(4)  # noqa: E731
    monkeypatch.setattr(type(stage.builders), "evaluate", none_is_under_way)
    stage.session.run()
    assert (stage.of(EvaluationFinished), len(stage.of(EvaluationCancelled))) == ([], 1)


def test_only_the_evaluation_under_way_is_cancelled(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.script = {2: [Evaluate(episodes=10**9), CancelEvaluation(), Evaluate(episodes=4)]}
    stage.session.run()
    assert [event.episodes for event in stage.of(EvaluationFinished)] == [4]
    assert len(stage.of(EvaluationCancelled)) == 1


def test_a_cancel_that_comes_too_late_cancels_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.script = {2: [CancelEvaluation(), Evaluate(episodes=4)]}
    stage.session.run()
    assert len(stage.of(EvaluationFinished)) == 1
    assert stage.of(EvaluationCancelled) == []
