"""A session, on fakes: what it does when, what it tells, and what it leaves alone."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from threading import Timer
from typing import Any

import msgspec
import pytest

from llamagym_tui.errors import EnvError, ModelLoadError, RunStoreError
from llamagym_tui.protocol.commands import (
    ComparePrompts,
    DrawStates,
    Evaluate,
    Pause,
    Resume,
    SaveCheckpoint,
    SetMode,
    SetPace,
    SetSystemPrompt,
    Step,
    Stop,
)
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    EpisodesCounted,
    EpisodeStarted,
    EvaluationCancelled,
    EvaluationFinished,
    ModeChanged,
    PaceChanged,
    PhaseChanged,
    PromptChanged,
    PromptsCompared,
    RunFinished,
    RunStarted,
    SessionFailed,
    TurnFinished,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.runs import run_store
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.event_sinks import EventEmitter
from tests.fake_parts import Clock, Rollout, Stage

FULL = RunStoreError("No checkpoint was written: No space left on device.")


def test_a_run_loads_trains_and_ends_at_its_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=20)
    assert stage.session.run() == "stopped"
    assert stage.phases() == [
        "loading", "rolling_out", "updating", "rolling_out", "updating", "rolling_out", "stopped",
    ]  # fmt: skip
    finished = stage.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.episodes, finished.env_steps, finished.updates) == (20, 20, 2)
    assert stage.rollout.is_closed


def test_a_start_that_fails_leaves_no_run_and_what_others_put_there(tmp_path: Path) -> None:
    faults = {"model": ModelLoadError("Model 'x' is not on this machine.")}
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "notes.txt").touch()
    for name in ("new", "kept"):
        assert Stage(tmp_path / name, faults=faults).session.run() == "failed"
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    assert [each.name for each in (tmp_path / "kept").iterdir()] == ["notes.txt"]


def test_the_run_is_described_before_the_first_step(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=2)
    stage.session.run()
    kinds = [type(event) for event in stage.events]
    assert kinds.index(RunStarted) < kinds.index(EpisodeStarted)
    started = stage.of(RunStarted)[0]
    assert (started.agent, started.model) == ("coin", "coin-model")
    assert (started.system_prompt, started.prompt_version) == ("Call the coin.", 0)


def test_every_episode_is_counted_once_and_at_most_five_times_a_second(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=400, mode="inference")
    stage.session.run()
    counted = stage.of(EpisodesCounted)
    assert sum(len(event.returns) for event in counted) == 400
    assert counted[-1].episodes == counted[-1].env_steps == 400
    gaps = [after.at_s - before.at_s for before, after in pairwise(counted[:-1])]
    assert set(gaps) == {0.25}, "the first step of an eighth of a second after a fifth"


def test_an_update_reports_its_figures_and_rates(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=16)
    stage.session.run()
    first, second = stage.of(UpdateFinished)
    assert (first.update, second.update) == (1, 2)
    assert (first.episodes, second.episodes) == (8, 16)
    assert second.stats.rollout_s == pytest.approx(0.5)


@pytest.mark.parametrize(("deviation", "warnings"), [(0.01, 0), (0.4, 1)])
def test_a_first_ratio_that_is_not_one_is_warned_of(
    tmp_path: Path, deviation: float, warnings: int
) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.also_before_step = lambda rollout: stage.learner.figures.update(first_ratio=deviation)
    stage.session.run()
    assert (
        len([event for event in stage.of(WarningRaised) if "cannot be trusted" in event.message])
        == warnings
    )


def test_in_inference_mode_nothing_is_trained_and_no_episode_enters_a_batch(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=200, mode="inference")
    stage.session.run()
    assert stage.learner.batches == []
    assert stage.rollout.take_batch() == []
    assert {event.mode for event in stage.of(EpisodesCounted)} == {"inference"}


def test_a_pause_holds_still_until_it_is_over(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=6)
    stage.script = {
        2: [Pause(), SetMode(mode="inference"), SetSystemPrompt(system_prompt="x"), Resume()]
    }
    stage.session.run()
    at = [index for index, event in enumerate(stage.events) if isinstance(event, PhaseChanged)]
    paused, resumed = (
        at[[stage.events[i].phase for i in at].index("paused") + step] for step in (0, 1)
    )
    between = [type(event) for event in stage.events[paused + 1 : resumed]]
    assert between == [ModeChanged, PromptChanged]
    assert stage.of(RunFinished)[0].episodes == 6


def test_a_paused_session_sleeps_until_a_command_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, episodes=6)
    stage.script = {2: [Pause()]}
    # From outside, so that a session that never sleeps comes to its end, too.
    waker = Timer(0.5, stage.command_queue.put, [Resume()])
    wait = stage.session.inbox.wait
    slept: list[float | None] = []

    def watched_wait(timeout_s: float | None = None) -> None:
        slept.append(timeout_s)
        wait(timeout_s)

    monkeypatch.setattr(stage.session.inbox, "wait", watched_wait)
    waker.start()
    stage.session.run()
    waker.join()
    assert slept == [None]
    assert stage.of(RunFinished)[0].episodes == 6


def test_a_prompt_has_a_version_and_reaches_the_environments(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=20)
    stage.script = {2: [SetSystemPrompt(system_prompt="one"), SetSystemPrompt(system_prompt="two")]}
    stage.session.run()
    assert [(e.prompt_version, e.system_prompt) for e in stage.of(PromptChanged)] == [
        (1, "one"),
        (2, "two"),
    ]
    assert (stage.rollout.system_prompt, stage.rollout.prompt_version) == ("two", 2)


@pytest.mark.parametrize("paused", [True, False])
def test_an_evaluation_goes_back_to_where_it_came_from(tmp_path: Path, paused: bool) -> None:
    stage = Stage(tmp_path, episodes=6)
    ask: list[Any] = [Evaluate(episodes=10, greedy=False)]
    stage.script = {2: [Pause(), *ask, Resume()] if paused else ask}
    stage.session.run()
    around = (
        ["paused", "evaluating", "paused"]
        if paused
        else ["rolling_out", "evaluating", "rolling_out"]
    )
    assert "-".join(around) in "-".join(stage.phases())
    (found,) = stage.of(EvaluationFinished)
    assert (found.episodes, found.greedy, found.mean_return) == (10, False, -0.25)
    assert stage.of(RunFinished)[0].episodes == 6


def test_a_stop_ends_an_evaluation_without_a_result(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.script = {2: [Evaluate(episodes=10**9), Pause(), Stop()]}
    assert stage.session.run() == "stopped"
    assert stage.of(EvaluationFinished) == []


def test_an_evaluation_that_fails_gives_a_reason_and_the_run_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=6, faults={"evaluate": EnvError("Coin-v0 cannot be made.")})
    stage.script = {2: [Evaluate(episodes=10)]}
    assert stage.session.run() == "stopped"
    (cancelled,) = stage.of(EvaluationCancelled)
    assert cancelled.why == "No evaluation: Coin-v0 cannot be made."
    assert stage.phases()[-3:] == ["evaluating", "rolling_out", "stopped"]


COMPARE = ComparePrompts(
    system_prompts=("Call the coin.", "Call tails."), versions=(0, 1), half_width=0.05
)


def test_two_prompts_are_compared_on_the_same_seeds_until_the_interval_is_narrow_enough(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, episodes=6)
    stage.script = {2: [COMPARE]}
    stage.session.run()
    (found,) = stage.of(PromptsCompared)
    # Differences of 0 and 1 in turn: variance 0.25 · 256/255; 1.1 times what ±0.05 takes are 424.3 pairs.
    first = EVALUATION_SEED + stage.session.config.seed
    played = [
        (each["system_prompt"], each["episodes"], each["seed"] - first)
        for each in stage.builders.made["evaluations"]
    ]
    assert played == [
        (text, n, seed) for n, seed in ((256, 0), (169, 1)) for text in COMPARE.system_prompts
    ]
    assert stage.learner.prompts[1:5] == [*COMPARE.system_prompts] * 2
    assert (found.pairs, found.difference) == (425, pytest.approx(0.5, abs=0.01))
    assert (found.a.prompt_version, found.b.system_prompt, found.b.update) == (
        0,
        "Call tails.",
        found.a.update,
    )
    assert stage.of(RunFinished)[0].episodes == 6, "the run's own are counted, and no others"
    assert stage.of(EvaluationFinished) == []


@pytest.mark.parametrize(("final_episodes", "evaluated"), [(16, 16), (0, None)])
def test_a_run_at_its_limit_ends_with_an_evaluation_after_its_checkpoint(
    tmp_path: Path, final_episodes: int, evaluated: int | None
) -> None:
    stage = Stage(tmp_path, episodes=6, evaluates_end=True, final_episodes=final_episodes)
    assert stage.session.run() == "stopped"
    assert [found.episodes for found in stage.of(EvaluationFinished)] == [evaluated] * (
        evaluated is not None
    )
    ends = [type(event) for event in stage.events if not isinstance(event, PhaseChanged)]
    assert ends[-1] is RunFinished
    if evaluated:
        assert ends[-3:] == [CheckpointSaved, EvaluationFinished, RunFinished]
        assert not stage.evaluated["greedy"]


def test_a_stop_saves_what_is_new_and_then_reports_the_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.script = {6: [Stop()]}
    stage.session.run()
    assert [type(event) for event in stage.events[-3:]] == [
        CheckpointSaved,
        PhaseChanged,
        RunFinished,
    ]
    assert stage.builders.saved[-1]["episodes"] == 12
    assert stage.of(CheckpointSaved)[-1].update == 1


def test_a_checkpoint_is_written_after_the_first_update_and_every_minute_of_training(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, minutes=3.2)
    stage.session.run()
    saved = [counters["elapsed_s"] for counters in stage.builders.saved]
    assert saved == [1.5, 61.5, 121.5, 181.5, pytest.approx(192, abs=1.5)]


def test_a_disk_that_is_full_does_not_end_a_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8, faults={"save": FULL})
    stage.script = {2: [SaveCheckpoint()]}
    stage.also_before_step = lambda rollout: (
        stage.builders.faults.clear() if rollout.episodes == 6 else None
    )
    stage.session.run()
    assert "No space left" in stage.of(WarningRaised)[0].message
    assert len(stage.of(UpdateFinished)) == 1


def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    before = Stage(tmp_path, episodes=20)
    before.script = {2: [SetSystemPrompt(system_prompt="Call tails.")]}
    before.session.run()
    after = Stage(tmp_path, episodes=28, resume=True)
    after.builders.saved.extend(before.builders.saved)
    after.session.run()
    started, finished = after.of(RunStarted)[0], after.of(RunFinished)[0]
    assert (started.system_prompt, started.prompt_version) == ("Call tails.", 1)
    assert (started.episodes, started.updates) == (20, 2)
    assert (finished.episodes, finished.env_steps, finished.updates) == (28, 28, 3)
    assert finished.elapsed_s > before.of(RunFinished)[0].elapsed_s
    assert after.of(EpisodesCounted)[0].episodes > 20
    assert after.of(UpdateFinished)[0].update == 3
    assert (
        after.rollout.seed == before.rollout.seed
    )  # an episode's own follows from that and from its number


def test_a_run_resumed_with_another_prompt_gives_it_the_next_version(tmp_path: Path) -> None:
    before = Stage(tmp_path, episodes=2)
    before.session.run()
    after = Stage(tmp_path, episodes=4, resume=True, system_prompt="another")
    after.builders.saved.extend(before.builders.saved)
    after.session.run()
    assert after.of(RunStarted)[0].prompt_version == 1
    assert (after.rollout.system_prompt, after.rollout.prompt_version) == ("another", 1)
    assert after.learner.prompts[0] == "another"


def test_a_run_that_goes_on_from_another_checkpoint_says_so(tmp_path: Path) -> None:
    before = Stage(tmp_path, episodes=2)
    before.session.run()
    after = Stage(tmp_path, episodes=4, resume=True, note="The latest checkpoint is broken.")
    after.builders.saved.extend(before.builders.saved)
    after.session.run()
    assert [warning.message for warning in after.of(WarningRaised)] == [
        "The latest checkpoint is broken."
    ]


def test_a_run_that_is_watched_slowly_plays_and_learns_as_fast_as_ever(tmp_path: Path) -> None:
    fast = Stage(tmp_path / "fast", episodes=80)
    fast.session.run()
    slow = Stage(tmp_path / "slow", episodes=80)
    slow.script = {1: [SetPace(turn_s=1.5)]}
    slow.session.run()
    assert slow.of(RunFinished)[0].elapsed_s == fast.of(RunFinished)[0].elapsed_s
    assert slow.learner.updates == fast.learner.updates == 10
    shown = [event.at_s for event in slow.of(TurnFinished)][1:]
    assert len(shown) == 5
    # Each state is seen for a turn's time, and so is what came of it.
    assert all(later - earlier >= 3.0 for earlier, later in pairwise(shown))


def test_the_pace_of_a_start_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=2)
    stage.session.showing.turn_s = 0.5
    stage.session.run()
    kinds = [type(event) for event in stage.events]
    assert kinds.index(PaceChanged) == kinds.index(RunStarted) + 1
    assert stage.of(PaceChanged)[0].turn_s == 0.5


def test_who_steps_sees_each_turn_as_it_is_played_at_any_pace(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=40)
    stage.script = {
        1: [SetPace(turn_s=60.0), Pause(), Step(unit="turn"), Step(unit="turn"), Resume()]
    }
    stage.session.run()
    assert [event.episode for event in stage.of(TurnFinished)] == [0, 2, 4]


def test_states_are_drawn_as_long_as_somebody_wants_to_see_them(tmp_path: Path) -> None:
    stage, drawn = Stage(tmp_path, episodes=8), []
    stage.script = {1: [DrawStates(on=True)], 3: [DrawStates(on=False)]}
    stage.also_before_step = lambda rollout: drawn.append(rollout.is_drawing)
    stage.session.run()
    assert drawn == [False, True, True, False]


def test_an_unknown_error_is_reported_with_the_log_that_has_its_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path, faults={"model": ZeroDivisionError("division by zero")})
    stage.session.run()
    message = stage.of(SessionFailed)[0].message
    assert "ZeroDivisionError" in message
    assert str(tmp_path / "trainer.log") in message
    assert "Traceback" in caplog.text


def test_an_environment_that_breaks_amid_a_run_ends_it_with_the_folder_closed(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)

    def breaks(rollout: Rollout) -> None:
        if rollout.episodes >= 10:  # after the first checkpoint
            raise EnvError("Coin-v0 refused action 3.")

    stage.also_before_step = breaks
    assert stage.session.run() == "failed"
    assert stage.rollout.is_closed
    assert list(run_store.read_events(tmp_path))[-1] == stage.events[-1]
    run_store.RunStore.create(
        msgspec.structs.replace(stage.config, resume=True)
    ).close()  # nobody holds it


@pytest.mark.parametrize(("is_finite", "saved"), [(True, [8, 10]), (False, [8])])
def test_a_failure_of_any_kind_saves_what_was_learnt_unless_it_is_not_finite(
    tmp_path: Path, is_finite: bool, saved: list[int]
) -> None:
    stage = Stage(tmp_path)

    def breaks(rollout: Rollout) -> None:
        if rollout.episodes == 10:
            stage.policy.has_finite_weights = is_finite
            raise RecursionError("deep")

    stage.also_before_step = breaks
    assert stage.session.run() == "failed"
    assert [counters["episodes"] for counters in stage.builders.saved] == saved
    assert stage.of(EpisodesCounted)[-1].episodes == 10, "what was played is counted"
    assert "RecursionError: deep" in stage.events[-1].message


def test_a_sink_that_breaks_is_dropped_and_the_others_get_a_warning() -> None:
    calls, seen = [], []

    def broken(event: Any) -> None:
        calls.append(event)
        raise BrokenPipeError(32, "Broken pipe")

    emitter = EventEmitter([broken, seen.append], Clock())
    emitter.emit(ModeChanged(mode="train"))
    emitter.emit(ModeChanged(mode="inference"))
    assert len(calls) == 1
    assert [type(event) for event in seen] == [ModeChanged, WarningRaised, ModeChanged]


def test_something_long_is_reported_twice_a_second_with_the_time_left_at_its_recent_speed() -> None:
    clock, seen = Clock(), []
    report = EventEmitter([seen.append], clock).progress("playing")
    # Seconds, and how much of 100 is done by then: 2 a second at first, later 10 a second.
    for after_s, done in [(0.4, 1), (4, 8), (4.2, 9), (5, 10), (10, 60), (12, 80), (14, 100)]:
        clock.now = 100.0 + after_s
        report(done, 100)
    found = [(event.doing, event.done, event.left_s) for event in seen]
    assert found == [
        ("playing", 8, None),
        ("playing", 10, pytest.approx(45.0)),
        ("playing", 60, pytest.approx(4.0)),
        ("playing", 80, pytest.approx(2.0)),
    ]


def test_something_short_is_not_reported() -> None:
    clock, seen = Clock(), []
    report = EventEmitter([seen.append], clock).progress("playing")
    clock.now += 0.9
    report(50, 100)
    assert seen == []
