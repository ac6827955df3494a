"""What was requested stays pending until the trainer confirms or refuses it, and nothing else ends it."""

from __future__ import annotations

import pytest

from llamagym_tui.protocol.commands import (
    AnyCommand,
    CancelEvaluation,
    ChangeSettings,
    ComparePrompts,
    Evaluate,
    ProbeActions,
    RollBack,
    SaveCheckpoint,
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
