"""A person at the wheel: what a session does while it waits, what a screen knows of it, what is recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, encode
from llamagym_tui.errors import EnvError
from llamagym_tui.protocol.commands import (
    Act,
    AnyCommand,
    LetGo,
    Pause,
    Resume,
    SetPace,
    Step,
    Stop,
    TakeWheel,
    Watch,
)
from llamagym_tui.protocol.events import (
    ActionAwaited,
    EpisodeCorrected,
    EpisodeFinished,
    EpisodesCounted,
    EpisodeStarted,
    RunFinished,
    TurnFinished,
    WarningRaised,
    WheelLetGo,
    WheelTaken,
)
from llamagym_tui.screens.demos.recording import DemoRecorder
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state, requested
from llamagym_tui.state.wheel import WheelState, wheel_texts
from tests import fakes
from tests.fake_parts import STEP_S, Stage

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
TAKEN = WheelTaken(env=4, choices=[])
AWAITED = ActionAwaited(episode=7, turn=1, reply="0", action_name="stick")
ACTED = Act(episode=7, turn=1, action=1)
TURN = TurnFinished(
    episode=7, turn=1, reply="1", action=1, action_name="hit", how="human", reward=0.0, replaced="0"
)  # fmt: skip


# The session


class Driven:
    """A session whose person answers by a script when the run stands still, and then stops it."""

    def __init__(self, run_dir: Path, *answers: AnyCommand, **settings: Any) -> None:
        self.stage = Stage(run_dir, **settings)
        self.waits: list[float] = []
        self._answers = [*answers, Stop()]
        self.stage.session.inbox.wait = self._wait  # type: ignore[method-assign]

    def _wait(self, timeout_s: float | None = None) -> None:
        assert timeout_s is None, "a person's turn is not hurried"
        self.stage.builders.clock.now += 60.0
        self.waits.append(self.stage.builders.clock.now)
        self.stage.command_queue.put(self._answers.pop(0))

    def run(self) -> Stage:
        self.stage.script = {1: [TakeWheel()]}
        self.stage.session.run()
        return self.stage


def act(episode: int, action: int = 1) -> Act:
    return Act(episode=episode, turn=0, action=action)


def test_a_run_stands_still_at_each_of_the_persons_turns_until_they_act(tmp_path: Path) -> None:
    driven = Driven(tmp_path, act(2), act(4))
    stage = driven.run()
    assert [event.episode for event in stage.of(ActionAwaited)] == [2, 4, 6]
    assert len(driven.waits) == 3
    assert stage.phases()[-1] == "stopped"


def test_waiting_for_a_person_is_neither_playing_nor_training(tmp_path: Path) -> None:
    stage = Driven(tmp_path, act(2)).run()
    assert stage.of(RunFinished)[0].elapsed_s == pytest.approx(2 * STEP_S)


def test_an_episode_with_a_persons_turn_counts_as_an_episode_and_in_no_mean(tmp_path: Path) -> None:
    stage = Driven(tmp_path, act(2), act(4)).run()
    counted = stage.of(EpisodesCounted)
    assert [value for event in counted for value in event.returns] == [0.0, 1.0, 1.0, 1.0]
    assert counted[-1].episodes == stage.of(RunFinished)[0].episodes == 6


def test_letting_go_is_confirmed_and_the_agent_plays_on(tmp_path: Path) -> None:
    driven = Driven(tmp_path, LetGo())
    driven.stage.script = {6: [Stop()]}
    driven.stage.script[1] = [TakeWheel()]
    driven.stage.session.run()
    assert driven.stage.steps == 6
    assert driven.stage.of(WheelLetGo) == [WheelLetGo(at_s=driven.stage.of(WheelLetGo)[0].at_s)]


def test_commands_are_obeyed_while_the_person_is_awaited(tmp_path: Path) -> None:
    stage = Driven(tmp_path, Pause(), act(2), Resume(), act(4)).run()
    assert stage.phases()[2:] == ["paused", "rolling_out", "stopped"]
    assert [event.episode for event in stage.of(ActionAwaited)] == [2, 4, 6]


def test_taking_the_wheel_ends_a_pause_and_a_step(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    driven.stage.script = {1: [Pause(), TakeWheel()], 2: [Step()]}
    driven.stage.session.run()
    assert driven.stage.phases()[2:] == ["paused", "rolling_out", "stopped"]
    assert len(driven.stage.of(ActionAwaited)) == 1


def test_who_takes_the_wheel_of_a_paused_run_finds_it_paused_again(tmp_path: Path) -> None:
    driven = Driven(tmp_path, act(2), LetGo())
    driven.stage.script = {1: [Pause(), TakeWheel()]}
    driven.stage.session.run()
    assert driven.stage.phases()[2:] == ["paused", "rolling_out", "paused", "stopped"]
    assert [event.episode for event in driven.stage.of(ActionAwaited)] == [2, 4]


def test_a_run_that_was_resumed_at_the_wheel_goes_on_after_it(tmp_path: Path) -> None:
    driven = Driven(tmp_path, Resume(), LetGo())
    driven.stage.script = {1: [Pause(), TakeWheel()], 6: [Stop()]}
    driven.stage.session.run()
    assert driven.stage.phases().count("paused") == 1


def test_the_pace_does_not_hurry_or_hold_up_who_has_the_wheel(tmp_path: Path) -> None:
    driven = Driven(tmp_path, SetPace(turn_s=60.0), act(2), act(4))
    assert len(driven.run().of(ActionAwaited)) == 3


def test_watching_something_else_lets_go(tmp_path: Path) -> None:
    driven = Driven(tmp_path, Watch(env=1))
    driven.stage.script = {1: [TakeWheel()], 4: [Stop()]}
    driven.stage.session.run()
    assert driven.stage.of(WheelLetGo)[0].reason == "another conversation is watched"


def test_what_a_person_did_is_emitted_before_a_run_ends(tmp_path: Path) -> None:
    driven = Driven(tmp_path, act(2))
    driven.run()
    assert driven.stage.builders.made["rollout"].corrections_emitted == 1


def test_what_a_person_did_is_reported_before_a_run_fails(tmp_path: Path) -> None:
    def breaks(rollout: Any) -> None:
        raise EnvError("Coin-v0 refused action 3.")

    stage = Stage(tmp_path)
    stage.also_before_step = breaks
    assert stage.session.run() == "failed"
    assert stage.rollout.corrections_emitted == 1


# What a screen knows


def test_the_wheel_is_the_persons_once_the_trainer_has_confirmed_it_and_a_turn_only_while_it_waits() -> (
    None
):
    wheel = WheelState().requesting(TakeWheel())
    assert (wheel.is_wanted, wheel.is_persons_turn) == (True, False)
    assert wheel.requesting(TakeWheel()) is wheel
    wheel = wheel.after(TAKEN)
    assert wheel.requesting(ACTED) is wheel, "nothing waits yet"
    wheel = wheel.after(AWAITED)
    assert wheel.is_persons_turn
    wheel = wheel.requesting(ACTED)
    assert wheel.requesting(ACTED) is wheel, "one key, one action"
    wheel = wheel.after(TURN)
    assert (wheel.awaited, wheel.acted, wheel.taken) == (None, None, TAKEN)
    next_turn = wheel.after(msgspec.structs.replace(AWAITED, turn=AWAITED.turn + 1))
    assert next_turn.requesting(ACTED) is next_turn, (
        "a second press that comes after the next turn has begun"
    )


def test_what_is_refused_can_be_tried_again() -> None:
    refused = WarningRaised(message="Word it anew.", refused="wheel")
    wheel = WheelState(taken=TAKEN, awaited=AWAITED).requesting(ACTED).after(refused)
    assert (wheel.fault, wheel.is_persons_turn) == ("Word it anew.", True)
    assert not WheelState().requesting(TakeWheel()).after(refused).is_wanted


def test_letting_go_ends_it_when_it_is_confirmed() -> None:
    wheel = WheelState(taken=TAKEN, awaited=AWAITED).requesting(LetGo())
    assert (wheel.is_wanted, wheel.is_persons_turn) == (True, False)
    assert wheel.after(WheelLetGo()) == WheelState()
    asked_too_early = WheelState().requesting(TakeWheel()).requesting(LetGo()).after(TAKEN)
    assert isinstance(asked_too_early.requested, LetGo)


def test_the_wheel_is_shown_in_words_where_it_is_not_seen() -> None:
    def key(id: str, otherwise: str) -> str:
        return {"wheel": "f9"}.get(id, otherwise)

    assert wheel_texts(WheelState(), key) == []
    assert "requested" in wheel_texts(WheelState(requested=TakeWheel()), key)[0]
    assert wheel_texts(WheelState(taken=TAKEN, awaited=AWAITED), key) == [
        "YOU HAVE THE WHEEL of environment 5; the run waits for your action. f9 goes back to it."
    ]


def test_the_run_state_has_the_wheel_until_the_trainer_is_gone(tmp_path: Path) -> None:
    state = requested(initial_state(fakes.config(tmp_path)), TakeWheel())
    for event in (TAKEN, AWAITED):
        state = reduce(state, event)
    assert state.wheel.is_persons_turn
    ended = RunFinished(episodes=0, env_steps=0, updates=0, elapsed_s=0.0)
    assert reduce(state, ended).wheel == WheelState()


# What is recorded


def turn(
    number: int, reply: str, replaced: str | None = None, reward: float = 0.0, **fields: Any
) -> TurnFinished:
    how = "json" if replaced is None else "human"
    seen = {"action": 1, "action_name": "hit", "how": how} | fields
    return TurnFinished(
        episode=3, turn=number, reply=reply, reward=reward, replaced=replaced, **seen
    )


def corrected(*turns: TurnFinished) -> EpisodeCorrected:
    started = EpisodeStarted(episode=3, system_prompt="Play.", prompt_version=1, mode="train")
    total = sum(turn.reward for turn in turns)
    finished = EpisodeFinished(episode=3, episode_return=total, length=len(turns), end="terminated")
    observations = [f"Your total: {12 + at}." for at in range(len(turns))]
    return EpisodeCorrected(
        started=started, observations=observations, turns=list(turns), finished=finished
    )


HIT, STICK = '{"action": 1}', '{"action": 0}'
TWO_TURNS = corrected(turn(0, HIT), turn(1, f"17 is enough. {STICK}", replaced=HIT, reward=1.0))


def demo_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoRecorder:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    return DemoRecorder(RunAgent("blackjack"), clock=lambda: NOON, next_seed=lambda: 1)


def recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: EpisodeCorrected
) -> tuple[Path, Demonstration]:
    kept = demo_recorder(tmp_path, monkeypatch)
    assert kept.add(event, "bundled")
    kept.writer.save()
    (demo,) = demo_files.read(kept.writer.path)
    return kept.writer.path, demo


def test_a_corrected_episode_is_recorded_with_what_the_model_would_have_replied(
    tmp_path, monkeypatch
) -> None:
    path, demo = recorded(tmp_path, monkeypatch, TWO_TURNS)
    assert (demo.source, demo.model, demo.actions, demo.rewards) == (
        "correction",
        "bundled",
        [1, 0],
        [0.0, 1.0],
    )
    assert demo.corrected == {1: HIT}
    assert b'"replaced_replies":{"1":"{\\"action\\": 1}"}' in path.read_bytes()
    assert demo_files.check(path, BlackjackAgent()) == []


def test_only_the_persons_turns_of_a_correction_are_trained_on(tmp_path, monkeypatch) -> None:
    _, demo = recorded(tmp_path, monkeypatch, TWO_TURNS)
    assert [message.get("weight") for message in demo.lesson] == [None, None, 0, None, None]
    assert all("weight" not in message for message in demo.messages)


def test_an_unreadable_reply_of_the_model_around_a_correction_is_no_fault(
    tmp_path, monkeypatch
) -> None:
    event = corrected(turn(0, "Hm.", how="failed", action=0), turn(1, STICK, replaced="Hm."))
    path, demo = recorded(tmp_path, monkeypatch, event)
    assert demo.actions == [0, 0]
    assert demo_files.check(path, BlackjackAgent()) == []


def test_a_corrected_episode_is_recorded_once_though_it_was_watched(tmp_path, monkeypatch) -> None:
    kept = demo_recorder(tmp_path, monkeypatch)
    seen = [TWO_TURNS.started]
    for number, (text, played) in enumerate(
        zip(TWO_TURNS.observations, TWO_TURNS.turns, strict=True)
    ):
        seen += [fakes.ObservationShown(episode=3, turn=number, text=text), played]
    added = [kept.add(event, "bundled") for event in (*seen, TWO_TURNS.finished, TWO_TURNS)]
    assert added == [False] * (len(seen) + 1) + [True]
    assert kept.keepable() is None


def test_an_episode_of_one_hand_has_the_line_that_it_had_before(tmp_path, monkeypatch) -> None:
    plain = corrected(turn(0, HIT))
    _, demo = recorded(tmp_path, monkeypatch, plain)
    assert demo.source == "model"
    assert b"replaced" not in encode(demo)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"1":', b'{"2":'),
        (b'"source":"correction"', b'"source":"model"'),
        (b'{"1":', b'{"one":'),
    ],
)
def test_a_broken_correction_is_a_fault(tmp_path, monkeypatch, before: bytes, after: bytes) -> None:
    path, _ = recorded(tmp_path, monkeypatch, TWO_TURNS)
    path.write_bytes(path.read_bytes().replace(before, after))
    (fault,) = demo_files.check(path, BlackjackAgent())
    assert fault.line == 1
