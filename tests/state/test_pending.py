"""A request stays pending until the trainer confirms or refuses it, and nothing else ends it."""

from __future__ import annotations

from functools import reduce as fold
from pathlib import Path

import pytest
from msgspec import structs

from llamagym_tui.protocol.commands import (
    Act,
    AnyCommand,
    CancelEvaluation,
    CancelWarmStart,
    ChangeSettings,
    ComparePrompts,
    Evaluate,
    InspectTurn,
    LetGo,
    Pause,
    ProbeActions,
    Resume,
    RollBack,
    SaveCheckpoint,
    SetMode,
    SetPace,
    SetSystemPrompt,
    Step,
    TakeWheel,
    WarmStart,
    Watch,
)
from llamagym_tui.protocol.events import (
    ActionAwaited,
    AnyEvent,
    CheckpointSaved,
    ConversationProbed,
    EvaluationCancelled,
    ModeChanged,
    PaceChanged,
    PhaseChanged,
    PromptChanged,
    PromptsCompared,
    RolledBack,
    SettingsChanged,
    WarmStartEvaluated,
    WarmStartFinished,
    WarningRaised,
    WatchChanged,
    WheelLetGo,
    WheelTaken,
)
from llamagym_tui.settings import WarmStartStats
from llamagym_tui.state.pending import Pending
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state, requested
from tests import fakes
from tests.screens.inspected import told

EVALUATED = fakes.evaluation(0.0, episodes=10, return_stderr=0.1)
CANCELLED = EvaluationCancelled(played=3, episodes=10)
COMPARE = ComparePrompts(system_prompts=("a", "b"), versions=(1, 2))
COMPARED = PromptsCompared(
    a=EVALUATED, b=EVALUATED, pairs=10, difference=0.0, difference_stderr=0.0, enough=0.1
)
STATS = WarmStartStats(
    demonstrations=20,
    tokens=180,
    steps=2,
    first_loss=1.5,
    last_loss=0.5,
    elapsed_s=3.0,
    cancelled=False,
)
FINISHED = WarmStartFinished(method="sft", stats=STATS)
STOPPED = structs.replace(FINISHED, stats=structs.replace(STATS, cancelled=True))
ANSWERS: list[tuple[AnyCommand, AnyEvent]] = [
    (SetMode(mode="inference"), ModeChanged(mode="inference")),
    (Pause(), PhaseChanged(phase="paused")),
    (Step(), PhaseChanged(phase="rolling_out")),
    (Step(unit="update"), WarningRaised(message="nothing is trained", refused="step")),
    (SetSystemPrompt(system_prompt="Win."), PromptChanged(prompt_version=2, system_prompt="Win.")),
    (SetPace(turn_s=1.5), PaceChanged(turn_s=1.5)),
    (Watch(env=2), WatchChanged(env=2)),
    (InspectTurn(episode=31, turn=1), told(31, 1)),
    (Evaluate(episodes=10), EVALUATED),
    (Evaluate(episodes=10), CANCELLED),
    (CancelEvaluation(), CANCELLED),
    (COMPARE, COMPARED),
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
    (TakeWheel(), WheelTaken(env=0, choices=[])),
    (TakeWheel(), WarningRaised(message="nothing is played", refused="wheel")),
    (WarmStart(episodes=0), FINISHED),
    (WarmStart(episodes=300), STOPPED),
    (WarmStart(episodes=300), WarmStartEvaluated(before=EVALUATED, after=EVALUATED)),
    (WarmStart(episodes=300), WarningRaised(message="no file", refused="warm_start")),
    (CancelWarmStart(), STOPPED),
]


def after(*told: AnyEvent | AnyCommand, state: RunState | None = None) -> RunState:
    """The state after events and requests."""

    def next_state(state: RunState, each: AnyEvent | AnyCommand) -> RunState:
        is_command = type(each).__module__.endswith("commands")
        return (requested if is_command else reduce)(state, each)  # type: ignore[arg-type]

    return fold(next_state, told, state or initial_state(fakes.config(Path("/runs/demo"))))


@pytest.mark.parametrize(("command", "answer"), ANSWERS)
def test_a_command_waits_for_its_answer(command: AnyCommand, answer: AnyEvent):
    state = after(command)
    assert state.pending == Pending((command,))
    assert requested(state, command) is state, "it is on its way already"
    others = (PhaseChanged(phase="updating"), WarningRaised(message="of something else"))
    assert after(*others, state=state).pending == Pending((command,))
    assert after(answer, state=state).pending == Pending()


@pytest.mark.parametrize(
    ("older", "newer", "answer"),
    [
        (InspectTurn(episode=31, turn=1), InspectTurn(episode=31, turn=2), told(31, 1)),
        (Watch(env=1), Watch(env=2), WatchChanged(env=1)),
        (
            SetSystemPrompt(system_prompt="first"),
            SetSystemPrompt(system_prompt="second"),
            PromptChanged(prompt_version=2, system_prompt="first"),
        ),
        (Pause(), Resume(), PhaseChanged(phase="paused")),
        (TakeWheel(), LetGo(), WheelTaken(env=0, choices=[])),
    ],
)
def test_an_answer_to_an_older_request_leaves_the_newer_one_pending(
    older: AnyCommand, newer: AnyCommand, answer: AnyEvent
):
    assert after(older, newer, answer).pending == Pending((newer,))


def test_each_setting_waits_for_itself():
    lr, n_envs = ChangeSettings(changes={"ppo.lr": 1e-4}), ChangeSettings(changes={"n_envs": 8})
    state = after(lr, n_envs)
    assert state.pending.settings == {"ppo.lr": 1e-4, "n_envs": 8}
    left = after(SettingsChanged(changes={"ppo.lr": 1e-4, "ppo.lr_final": 1e-4}), state=state)
    assert left.pending.settings == {"n_envs": 8}


def test_a_request_is_active_only_when_it_is_confirmed():
    asked = after(Watch(env=1), SetPace(turn_s=1.5))
    assert (asked.env, asked.env_intended, asked.turn_s, asked.turn_s_intended) == (0, 1, 0.0, 1.5)
    confirmed = after(WatchChanged(env=1), PaceChanged(turn_s=1.5), state=asked)
    assert (confirmed.env, confirmed.turn_s, confirmed.slower, confirmed.faster) == (
        1,
        1.5,
        4.0,
        0.5,
    )


def test_a_person_acts_once_in_the_turn_that_waits():
    waits = ActionAwaited(episode=3, turn=1, reply="", action_name="hit")
    act = Act(episode=3, turn=1, action=1)
    state = after(TakeWheel(), WheelTaken(env=0, choices=[]))
    assert not state.is_persons_turn
    assert requested(state, act) is state
    state = after(waits, state=state)
    assert state.is_persons_turn
    assert requested(state, Act(episode=3, turn=0, action=1)) is state, "an older turn"
    state = after(act, state=state)
    assert not state.is_persons_turn
    refused = after(WarningRaised(message="no such action", refused="wheel"), state=state)
    assert refused.is_persons_turn
    let_go = after(LetGo(), WheelLetGo(), state=state)
    assert (let_go.wheel, let_go.awaited, let_go.pending) == (None, None, Pending())


@pytest.mark.parametrize("at", [0, 2])
def test_a_warm_start_awaits_no_evaluation_after_one_was_cancelled(at: int):
    events: list[AnyEvent] = [PhaseChanged(phase="warm_starting"), FINISHED]
    events.insert(at, CANCELLED)
    ended = after(WarmStart(episodes=300), *events, PhaseChanged(phase="rolling_out"))
    assert not ended.is_warm_starting
    assert ended.warm_start.result == FINISHED


def test_the_last_inspected_reply_is_known():
    state = after(InspectTurn(episode=31, turn=1), told(31, 1))
    assert state.inspection.of(31, 1) == told(31, 1)
    assert state.inspection.of(31, 0) is None
