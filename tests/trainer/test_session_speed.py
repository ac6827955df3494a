"""A session at other speeds: slowed to reading pace, a turn at a time, an update at a time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from llamagym_tui.protocol.commands import (
    Pause,
    Resume,
    SetMode,
    SetPace,
    Step,
    Stop,
    Watch,
)
from llamagym_tui.protocol.events import (
    ActionsProbed,
    EpisodeStarted,
    ModeChanged,
    PaceChanged,
    PhaseChanged,
    UpdateFinished,
    WarningRaised,
    WatchChanged,
)
from tests.fake_parts import STEP_S, Rollout, Stage

AGAIN = ActionsProbed(episode=0, turn=0, names=["heads"], shares=[1.0], before=[0.5])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A session that waits on the fake clock when it is slowed, and ends when there is no more command."""
    stage = Stage(tmp_path)
    inbox, wait = stage.session.inbox, stage.session.inbox.wait

    def fake_wait(timeout_s: float | None = None) -> None:
        if timeout_s is not None:
            stage.builders.clock.now += timeout_s
        elif not inbox.holds(object):  # no command of any kind
            stage.command_queue.put(Stop())
        else:
            wait()

    inbox.wait = fake_wait  # type: ignore[method-assign]
    return stage


def test_a_step_of_a_turn_is_one_turn_and_then_a_pause(stage: Stage) -> None:
    stage.script = {1: [Pause(), Step(), Step()]}
    stage.session.run()
    assert stage.steps == 3
    assert stage.phases()[2:] == [
        "paused",
        "rolling_out",
        "paused",
        "rolling_out",
        "paused",
        "stopped",
    ]


def test_a_step_to_an_update_ends_after_it(stage: Stage) -> None:
    stage.script = {2: [Pause(), Step(unit="update")]}
    stage.session.run()
    assert len(stage.of(UpdateFinished)) == 1
    assert stage.steps == 4  # four steps fill a batch
    assert stage.phases()[2:] == [
        "paused",
        "rolling_out",
        "updating",
        "rolling_out",
        "paused",
        "stopped",
    ]


def test_a_step_that_fills_the_batch_updates_too(stage: Stage) -> None:
    stage.script = {3: [Pause(), Step()]}
    stage.session.run()
    assert (stage.steps, len(stage.of(UpdateFinished))) == (4, 1)


def test_a_step_may_be_requested_while_the_run_goes_on(stage: Stage) -> None:
    stage.script = {1: [Step(unit="update")]}
    stage.session.run()
    assert stage.phases()[-4:] == ["updating", "rolling_out", "paused", "stopped"]
    assert "one update, then a pause" in [event.detail for event in stage.of(PhaseChanged)]


def test_going_on_takes_a_step_back(stage: Stage) -> None:
    stage.script = {1: [Step(unit="update")], 2: [Resume()], 6: [Stop()]}
    stage.session.run()
    assert "paused" not in stage.phases()


def test_no_step_to_an_update_where_nothing_is_trained(stage: Stage) -> None:
    stage.script = {1: [SetMode(mode="inference"), Pause(), Step(unit="update")]}
    stage.session.run()
    assert [event.refused for event in stage.of(WarningRaised)] == ["step"]
    assert stage.phases()[-2:] == ["paused", "stopped"]


def test_at_reading_pace_a_turn_of_the_watched_environment_comes_every_so_many_seconds(
    stage: Stage,
) -> None:
    stage.script = {1: [SetPace(turn_s=1.5)], 4: [Stop()]}
    stage.session.run()
    assert stage.of(PaceChanged)[0].turn_s == 1.5
    times = [event.at_s for event in stage.of(EpisodeStarted)]
    assert [after - before for before, after in pairwise(times)] == [1.5] * 3


def test_what_is_not_watched_is_not_slowed(stage: Stage) -> None:
    stage.script = {1: [SetPace(turn_s=1.5), Watch(env=1)], 4: [Stop()]}
    stage.session.run()
    assert stage.of(WatchChanged)[0].env == 1
    assert stage.builders.clock.now == pytest.approx(100 + 4 * STEP_S + 1.0 + 0.0, abs=1.1)


def test_what_is_watched_changes_in_the_middle_of_an_update(stage: Stage) -> None:
    def ask(number: int) -> None:
        if number == 1:
            for command in (
                SetMode(mode="inference"),
                Watch(env=1),
                SetPace(turn_s=4.0),
                Stop(),
            ):
                stage.command_queue.put(command)

    stage.also_before_step = lambda rollout: setattr(stage.learner, "before_minibatch", ask)
    stage.session.run()
    kinds = [type(event) for event in stage.events]
    assert (
        kinds.index(WatchChanged)
        < kinds.index(PaceChanged)
        < kinds.index(UpdateFinished)
        < kinds.index(ModeChanged)
    )


def test_actions_are_probed_only_where_there_is_time_to_read_and_again_after_an_update(
    stage: Stage,
) -> None:
    probed: list[tuple[str, int]] = []

    def listen(rollout: object) -> None:
        probes = stage.session.active_run.action_probes
        stage.rollout.pending_prompt = lambda: "where the watched episode waits"
        probes.probe = lambda where: probed.append(("probe", stage.steps))
        probes.probe_again = lambda: probed.append(("again", stage.steps)) or AGAIN

    stage.also_before_step = listen
    stage.script = {6: [SetPace(turn_s=0.5)], 9: [SetPace(turn_s=0.0)], 11: [Pause()]}
    stage.session.run()
    # An update comes after every fourth step; the run ends when it is paused.
    assert list(dict.fromkeys(probed)) == [
        ("probe", 6),
        ("probe", 7),
        ("again", 8),
        ("probe", 8),
        ("probe", 11),
    ]
    assert [probed.before for probed in stage.of(ActionsProbed)] == [AGAIN.before]


def test_the_first_episode_begins_before_its_actions_are_probed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Rollout, "begin_episodes", lambda rollout: calls.append("began"))
    monkeypatch.setattr(Rollout, "pending_prompt", lambda rollout: calls.append("probed"))
    stage.command_queue.put(SetPace(turn_s=0.5))
    stage.script = {1: [Stop()]}
    stage.session.run()
    assert calls[:2] == ["began", "probed"]


def test_a_single_step_does_not_wait_for_the_pace(stage: Stage) -> None:
    stage.script = {1: [SetPace(turn_s=60.0), Pause(), Step()]}
    stage.session.run()
    assert stage.steps == 2
    assert stage.events[-1].at_s < 60
