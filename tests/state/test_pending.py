"""What was pending for stays pending until the trainer confirms or refuses it, and nothing else ends it."""

from __future__ import annotations

import pytest

from llamagym_tui.protocol.commands import (
    AnyCommand,
    CancelEvaluation,
    ChangeSettings,
    Evaluate,
    Pause,
    RollBack,
    SaveCheckpoint,
)
from llamagym_tui.protocol.events import (
    AnyEvent,
    CheckpointSaved,
    EvaluationCancelled,
    EvaluationFinished,
    PhaseChanged,
    RolledBack,
    SettingsChanged,
    WarningRaised,
)
from llamagym_tui.state.pending import Pending

EVALUATED = EvaluationFinished(
    episodes=10, greedy=True, mean_return=0.0, return_stderr=0.1, parse_failure_rate=0.0, elapsed_s=1.0
)
ANSWERS: list[tuple[AnyCommand, AnyEvent]] = [
    (Evaluate(episodes=10), EVALUATED),
    (Evaluate(episodes=10), EvaluationCancelled(played=3, episodes=10)),
    (CancelEvaluation(), EvaluationCancelled(played=3, episodes=10)),
    (CancelEvaluation(), EVALUATED),
    (SaveCheckpoint(), CheckpointSaved(path="model", update=3)),
    (SaveCheckpoint(), WarningRaised(message="full disk", refused="checkpoint")),
    (RollBack(), RolledBack(update=1, path="good", reason="pending for")),
    (RollBack(), WarningRaised(message="none is there", refused="roll_back")),
    (ChangeSettings(changes={"ppo.lr": 1e-4}), SettingsChanged(changes={"ppo.lr": 1e-4}, update=1, episodes=2)),
    (ChangeSettings(changes={"ppo.lr": -1.0}), WarningRaised(message="refused", refused="settings")),
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
    pending = (
        Pending().requesting(ChangeSettings(changes={"ppo.lr": 1e-4})).requesting(ChangeSettings(changes={"n_envs": 8}))
    )
    left = pending.after(SettingsChanged(changes={"ppo.lr": 1e-4, "ppo.lr_final": 1e-4}, update=1, episodes=2))
    assert left.settings == {"n_envs": 8}


def test_a_newer_value_replaces_the_one_on_its_way():
    pending = (
        Pending().requesting(ChangeSettings(changes={"n_envs": 8})).requesting(ChangeSettings(changes={"n_envs": 16}))
    )
    assert pending.settings == {"n_envs": 16}


def test_what_has_a_field_of_its_own_is_not_recorded_twice():
    pending = Pending()
    assert pending.requesting(Pause()) is pending
