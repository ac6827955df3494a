"""What was requested stays pending until the trainer confirms or refuses it, and nothing else ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.protocol.commands import (
    AnyCommand,
    CancelEvaluation,
    ChangeSettings,
    ComparePrompts,
    Evaluate,
    Pause,
    ProbeActions,
    RollBack,
    SaveCheckpoint,
    SetMode,
    WarmStart,
)
from llamagym_tui.protocol.events import (
    AnyEvent,
    CheckpointSaved,
    ConversationProbed,
    EvaluationCancelled,
    PhaseChanged,
    PromptsCompared,
    RolledBack,
    SettingsChanged,
    WarningRaised,
)
from llamagym_tui.state.pending import Pending
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state, requested
from llamagym_tui.state.transcript import Notice
from llamagym_tui.state.warm_start import Stage
from tests import fakes

EVALUATED = fakes.evaluation(0.0, episodes=10, return_stderr=0.1)
COMPARE = ComparePrompts(system_prompts=("a", "b"), versions=(1, 2))
COMPARED = PromptsCompared(
    a=EVALUATED, b=EVALUATED, pairs=10, difference=0.0, difference_stderr=0.0, enough=0.1
)
ANSWERS: list[tuple[AnyCommand, AnyEvent]] = [
    (Evaluate(episodes=10), EVALUATED),
    (Evaluate(episodes=10), EvaluationCancelled(played=3, episodes=10)),
    (CancelEvaluation(), EvaluationCancelled(played=3, episodes=10)),
    (CancelEvaluation(), EVALUATED),
    (COMPARE, COMPARED),
    (COMPARE, EvaluationCancelled(played=3, episodes=10)),
    (SaveCheckpoint(), CheckpointSaved(update=3)),
    (SaveCheckpoint(), WarningRaised(message="full disk", refused="checkpoint")),
    (RollBack(), RolledBack(update=1, reason="requested")),
    (RollBack(), WarningRaised(message="none is there", refused="roll_back")),
    (ChangeSettings(changes={"ppo.lr": 1e-4}), SettingsChanged(changes={"ppo.lr": 1e-4})),
    (
        ChangeSettings(changes={"ppo.lr": -1.0}),
        WarningRaised(message="refused", refused="settings"),
    ),
    (
        ProbeActions(ticket=3, messages=[]),
        ConversationProbed(ticket=3, names=["stick"], shares=[1.0]),
    ),
]


@pytest.mark.parametrize(("command", "answer"), ANSWERS)
def test_a_command_waits_for_its_answer(command: AnyCommand, answer: AnyEvent):
    pending = Pending().requesting(command)
    assert pending != Pending()
    assert pending.requesting(command) is pending, "it is on its way already"
    for other in (PhaseChanged(phase="paused"), WarningRaised(message="of something else")):
        assert pending.after(other) == pending
    assert pending.after(answer) == Pending()


def test_each_setting_waits_for_itself():
    lr, n_envs = ChangeSettings(changes={"ppo.lr": 1e-4}), ChangeSettings(changes={"n_envs": 8})
    pending = Pending().requesting(lr).requesting(n_envs)
    left = pending.after(SettingsChanged(changes={"ppo.lr": 1e-4, "ppo.lr_final": 1e-4}))
    assert left.settings == {"n_envs": 8}


def test_a_newer_value_replaces_the_one_on_its_way():
    older, newer = (ChangeSettings(changes={"n_envs": n_envs}) for n_envs in (8, 16))
    pending = Pending().requesting(older).requesting(newer)
    assert pending.settings == {"n_envs": 16}


def test_what_has_a_field_of_its_own_is_not_recorded_twice():
    pending = Pending()
    assert pending.requesting(Pause()) is pending


def test_an_answer_to_an_older_question_leaves_the_newer_one_pending():
    pending = Pending().requesting(ProbeActions(ticket=4, messages=[]))
    assert pending.after(ConversationProbed(ticket=3, names=["stick"], shares=[1.0])) is pending


def test_the_evaluations_around_a_warm_start_are_part_of_it(tmp_path: Path):
    state = initial_state(fakes.config(tmp_path))
    begun = requested(state, WarmStart(episodes=10))
    assert (begun.pending, begun.warm_start.stage, begun.warm_start.evaluates) == (
        Pending(),
        Stage.REQUESTED,
        True,
    )
    assert requested(begun, WarmStart()) is begun, "one at a time"
    evaluation = Evaluate(episodes=10)
    assert not requested(state, WarmStart()).warm_start.evaluates
    assert (
        requested(requested(begun, SetMode(mode="inference")), evaluation).pending.evaluation
        == evaluation
    )


def test_a_checkpoint_is_reported_to_who_requested_it_and_not_otherwise(tmp_path: Path):
    state, saved = initial_state(fakes.config(tmp_path)), CheckpointSaved(update=1234)
    assert reduce(state, saved).transcript.entries == state.transcript.entries
    answered = reduce(requested(state, SaveCheckpoint()), saved)
    assert answered.transcript.entries[-1].fact == Notice("Checkpoint written, after update 1,234.")
