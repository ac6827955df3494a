"""A person at the wheel: what a session does while it waits, what a screen knows of it, what is recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.faults import check
from llamagym_tui.protocol.commands import (
    Act,
    AnyCommand,
    LetGo,
    Pause,
    Step,
    Stop,
    TakeWheel,
)
from llamagym_tui.protocol.events import (
    ActionAwaited,
    EpisodeCorrected,
    EpisodeFinished,
    EpisodesCounted,
    EpisodeStarted,
    RunFinished,
    TurnFinished,
    WheelTaken,
)
from llamagym_tui.screens.play.table import DemoRecorder
from llamagym_tui.setup.run_agent import RunAgent
from tests.fake_parts import Stage

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


def test_an_episode_with_a_persons_turn_counts_as_an_episode_and_in_no_mean(tmp_path: Path) -> None:
    stage = Driven(tmp_path, act(2), act(4)).run()
    counted = stage.of(EpisodesCounted)
    assert [value for event in counted for value in event.returns] == [0.0, 1.0, 1.0, 1.0]
    assert counted[-1].episodes == stage.of(RunFinished)[0].episodes == 6


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


def test_what_a_person_did_is_emitted_before_a_run_ends(tmp_path: Path) -> None:
    driven = Driven(tmp_path, act(2))
    driven.run()
    assert driven.stage.builders.made["rollout"].corrections_emitted == 1


# What a screen knows


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
    kept.add(event, "bundled")
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
    assert demo.replaced_replies == {1: HIT}
    assert b'"replaced_replies":{"1":"{\\"action\\": 1}"}' in path.read_bytes()
    assert check(path, BlackjackAgent()) == []


def test_only_the_persons_turns_of_a_correction_are_trained_on(tmp_path, monkeypatch) -> None:
    _, demo = recorded(tmp_path, monkeypatch, TWO_TURNS)
    assert [message.get("weight") for message in demo.lesson] == [None, None, 0, None, None]
    assert all("weight" not in message for message in demo.messages)
