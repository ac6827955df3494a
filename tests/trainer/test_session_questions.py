"""Questions about the policy, and evaluations that are cancelled, while a session does something long."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.game.chat import user
from llamagym_tui.protocol.commands import CancelEvaluation, Evaluate, ProbeActions, Stop
from llamagym_tui.protocol.events import (
    ConversationProbed,
    EvaluationCancelled,
    EvaluationFinished,
    PhaseChanged,
    UpdateFinished,
)
from llamagym_tui.trainer.probes.inspect_reply import ActionProbes
from tests.fake_parts import Stage

QUESTION = ProbeActions(ticket=7, messages=[user("Call.")])


@pytest.fixture(autouse=True)
def probed_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(probing: ActionProbes, question: ProbeActions) -> ConversationProbed:
        return ConversationProbed(ticket=question.ticket, names=["heads"], shares=[1.0])

    monkeypatch.setattr(ActionProbes, "probe_conversation", answer)


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
