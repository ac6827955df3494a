"""A session, on fakes: what it does when, what it tells, and what it leaves alone."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llamagym_tui import run_store
from llamagym_tui.errors import EnvError, ModelLoadError, RunStoreError, UsageError
from llamagym_tui.protocol.commands import (
    CancelEvaluation,
    ComparePrompts,
    DrawStates,
    Evaluate,
    Pause,
    Resume,
    SaveCheckpoint,
    SetMode,
    SetPace,
    SetSystemPrompt,
    StartRun,
    Stop,
)
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    EpisodesCounted,
    EpisodeStarted,
    EvaluationCancelled,
    EvaluationFinished,
    MatchPlayed,
    ModeChanged,
    PaceChanged,
    PhaseChanged,
    Progressed,
    PromptChanged,
    PromptsCompared,
    RunFinished,
    RunStarted,
    SessionFailed,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.trainer import session
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.event_sinks import EventEmitter
from tests import fake_parts
from tests.fake_parts import EPISODES_A_BATCH, Clock, Rollout, Stage

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


def test_a_resumed_run_that_fails_to_start_stays(tmp_path: Path) -> None:
    Stage(tmp_path, episodes=20).session.run()
    faults = {"model": ModelLoadError("Model 'x' is not on this machine.")}
    stage = Stage(tmp_path, faults=faults, resume=True)
    assert stage.session.run() == "failed"
    assert run_store.is_run(tmp_path)


def test_the_run_is_described_before_the_first_step(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=2, seed=5)
    stage.session.run()
    kinds = [type(event) for event in stage.events]
    assert kinds.index(RunStarted) < kinds.index(EpisodeStarted)
    started = stage.of(RunStarted)[0]
    assert (started.agent, started.model, started.seed) == ("coin", "coin-model", 5)
    assert (started.system_prompt, started.prompt_version, started.action_names) == (
        "Call the coin.", 0, ["heads", "tails"],
    )  # fmt: skip


def test_folder_and_wire_get_the_same_events_but_for_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_parts, "UPDATE_S", 4.0)
    stage = Stage(tmp_path, episodes=20)
    stage.session.run()
    progress = stage.of(Progressed)
    assert progress
    assert list(run_store.read_events(tmp_path)) == [
        event for event in stage.events if event not in progress
    ]


def test_a_reading_of_prompts_is_reported_from_its_beginning_where_it_takes_long(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, episodes=12)
    read_s = 0.5

    def read(prompts: int) -> None:
        on_reading = stage.policy.on_reading
        on_reading(0, prompts)
        for done in range(1, prompts + 1):
            stage.builders.clock.now += read_s
            on_reading(done, prompts)

    steps = iter((6, 2, 8))

    def before_step(rollout: Rollout) -> None:
        if (prompts := next(steps, 0)) == 8:
            stage.command_queue.put(SetPace(turn_s=0.0))
        read(prompts)

    stage.also_before_step = before_step
    stage.session.run()
    seen = [event for event in stage.of(Progressed) if event.doing == "reading prompts"]
    assert [(event.done, event.total, event.left_s) for event in seen] == [
        (0, 6, None),  # how long it takes is not known before the first one
        *((done, 6, (6 - done) * read_s) for done in range(1, 6)),
        # two take a second, and are not reported
        (0, 8, 4.0),
        *((done, 8, (8 - done) * read_s) for done in range(1, 8)),
    ]
    # A pace that is asked for meanwhile is confirmed before the end.
    (paced,) = stage.of(PaceChanged)
    assert paced.at_s < seen[-1].at_s


def test_events_carry_seconds_since_the_session_began(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.session.run()
    times = [event.at_s for event in stage.events]
    assert times == sorted(times)
    assert stage.of(UpdateFinished)[0].at_s == pytest.approx(4 * 0.125 + 1.0)


def test_every_episode_is_counted_once_and_at_most_five_times_a_second(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=400, mode="inference")
    stage.session.run()
    counted = stage.of(EpisodesCounted)
    assert sum(len(event.returns) for event in counted) == 400
    assert counted[-1].episodes == counted[-1].env_steps == 400
    gaps = [after.at_s - before.at_s for before, after in pairwise(counted[:-1])]
    assert set(gaps) == {0.25}, "the first step of an eighth of a second after a fifth"


def test_episodes_of_two_prompts_are_counted_apart(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=40, mode="inference")
    stage.script = {2: [SetSystemPrompt(system_prompt="Call tails.")]}
    stage.session.run()
    by_version: dict[int, int] = {}
    for event in stage.of(EpisodesCounted):
        by_version[event.prompt_version] = by_version.get(event.prompt_version, 0) + len(
            event.returns
        )
    assert by_version == {0: 4, 1: 36}
    assert [event.episodes for event in stage.of(EpisodesCounted)][-1] == 40


def test_the_rate_of_episodes_counts_updates_but_not_pauses(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=80)
    stage.script = {5: [Pause(), Evaluate(episodes=800), Resume()]}
    stage.session.run()
    # Eight episodes take four steps of an eighth and an update of a second.
    assert stage.of(EpisodesCounted)[-1].episodes_per_s == pytest.approx(8 / 1.5, rel=0.15)


def test_an_update_reports_its_figures_and_rates(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=16)
    stage.session.run()
    first, second = stage.of(UpdateFinished)
    assert (first.update, second.update) == (1, 2)
    assert (first.episodes, second.episodes) == (8, 16)
    assert second.stats.rollout_s == pytest.approx(0.5)
    assert second.stats.tokens_per_s == pytest.approx(40 / 0.5)
    assert second.stats.episodes_per_s == pytest.approx(EPISODES_A_BATCH / 1.5)


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


def test_time_in_inference_mode_is_not_of_the_next_batch(tmp_path: Path) -> None:
    stage = Stage(tmp_path, mode="inference", episodes=100 * 2)
    stage.script = {80: [SetMode(mode="train")]}
    stage.session.run()
    assert stage.of(UpdateFinished)[0].stats.rollout_s == pytest.approx(0.5)


def test_in_inference_mode_nothing_is_trained_and_no_episode_enters_a_batch(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=200, mode="inference")
    stage.session.run()
    assert stage.learner.batches == []
    assert stage.rollout.take_batch() == []
    assert {event.mode for event in stage.of(EpisodesCounted)} == {"inference"}


def test_a_batch_that_is_full_waits_while_in_inference_mode(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=40)
    stage.script = {3: [SetMode(mode="inference")], 10: [SetMode(mode="train")]}
    updates: list[int] = []

    def overfill(rollout: Rollout) -> None:
        if len(updates) == 5:
            rollout.fill_batch()
        updates.append(stage.learner.updates)

    stage.also_before_step = overfill
    stage.session.run()
    assert updates[:11] == [0] * 11
    assert stage.learner.updates > 0
    assert [event.mode for event in stage.of(ModeChanged)] == ["inference", "train"]
    assert {episode.mode for batch in stage.learner.batches for episode in batch} == {"train"}


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


def test_pausing_twice_and_resuming_twice_is_harmless(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=6)
    stage.script = {2: [Resume(), Pause(), Pause(), Resume(), Resume()]}
    assert stage.session.run() == "stopped"
    assert stage.phases() == ["loading", "rolling_out", "paused", "rolling_out", "stopped"]


def test_a_run_can_be_stopped_while_paused(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.script = {2: [Pause(), Stop()]}
    assert stage.session.run() == "stopped"
    assert stage.phases()[-2:] == ["paused", "stopped"]


def test_a_prompt_has_a_version_and_reaches_the_environments(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=20)
    stage.script = {2: [SetSystemPrompt(system_prompt="one"), SetSystemPrompt(system_prompt="two")]}
    stage.session.run()
    assert [(e.prompt_version, e.system_prompt) for e in stage.of(PromptChanged)] == [
        (1, "one"),
        (2, "two"),
    ]
    assert (stage.rollout.system_prompt, stage.rollout.prompt_version) == ("two", 2)


def test_a_prompt_of_the_settings_replaces_the_agents_own_even_if_empty(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=2, system_prompt="")
    stage.session.run()
    assert stage.of(RunStarted)[0].system_prompt == ""


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


def test_an_evaluation_uses_the_prompt_of_now(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=6)
    stage.script = {2: [SetSystemPrompt(system_prompt="now"), Evaluate(episodes=1)]}
    stage.session.run()
    assert stage.evaluated["system_prompt"] == "now"
    (found,) = stage.of(EvaluationFinished)
    assert (found.system_prompt, found.prompt_version) == (
        "now",
        stage.of(PromptChanged)[0].prompt_version,
    )
    updates = [
        event.update
        for event in stage.events[: stage.events.index(found)]
        if isinstance(event, UpdateFinished)
    ]
    assert found.update == (updates[-1] if updates else 0)


def test_an_evaluation_reports_its_progress_twice_a_second_at_most(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=4)
    stage.script = {1: [Evaluate(episodes=40)]}
    stage.session.run()
    seen = [event for event in stage.of(PhaseChanged) if event.phase == "evaluating"]
    assert seen[0].detail == "0 of 40 episodes"
    assert seen[1].detail == "4 of 40 episodes, 4 s left"
    assert seen[-1].detail == "40 of 40 episodes"
    assert len(seen) == 1 + 10


def test_an_evaluation_that_was_quick_has_reported_its_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=4)
    stage.script = {1: [Evaluate(episodes=1)]}
    stage.session.run()
    seen = [event.detail for event in stage.of(PhaseChanged) if event.phase == "evaluating"]
    assert seen == ["0 of 1 episode", "1 of 1 episode"]


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


def test_a_match_is_no_evaluation_and_has_the_return_of_each_episode(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=6)
    stage.script = {2: [Evaluate(episodes=3, seed=5), Evaluate(episodes=2)]}
    stage.session.run()
    (seeded,) = stage.of(MatchPlayed)
    (other,) = stage.of(EvaluationFinished)
    assert (seeded.seed, seeded.returns) == (5, [0.0, 1.0, 0.0])
    assert (seeded.played.episodes, other.episodes) == (3, 2)
    asked = [(each["seed"], each["held_out"]) for each in stage.builders.made["evaluations"]]
    assert asked == [(5, False), (None, True)], "a match is played where the person plays"


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
    first = EVALUATION_SEED + stage.session._config.seed
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


def test_a_comparison_that_is_cancelled_has_no_result(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=6)
    stage.script = {2: [COMPARE, CancelEvaluation()]}
    stage.session.run()
    assert len(stage.of(EvaluationCancelled)) == 1
    assert stage.of(PromptsCompared) == []
    assert len(stage.builders.made["evaluations"]) == 1


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


def test_an_evaluation_at_the_end_that_takes_too_long_has_no_result(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path, episodes=6, evaluates_end=True, final_s=0.5
    )  # the fake's episodes take 0.125 s each
    assert stage.session.run() == "stopped"
    assert stage.of(EvaluationFinished) == []
    (cancelled,) = stage.of(EvaluationCancelled)
    assert (cancelled.played, "llamagym-tui eval" in cancelled.why) == (12, True)  # 3 · 0.5 s


def test_a_run_that_is_stopped_waits_for_no_evaluation(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=6, evaluates_end=True)
    stage.script = {2: [Stop()]}
    assert stage.session.run() == "stopped"
    assert "evaluated" not in stage.builders.made


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


def test_what_was_just_saved_is_not_saved_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.script = {3: [SaveCheckpoint(), Stop()]}
    stage.session.run()
    assert [counters["episodes"] for counters in stage.builders.saved] == [6]


def test_a_run_stopped_before_its_first_step_leaves_no_checkpoint(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.command_queue.put(Stop())
    assert stage.session.run() == "stopped"
    assert stage.builders.saved == []


def test_a_checkpoint_is_written_after_the_first_update_and_every_minute_of_training(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, minutes=3.2)
    stage.session.run()
    saved = [counters["elapsed_s"] for counters in stage.builders.saved]
    assert saved == [1.5, 61.5, 121.5, 181.5, pytest.approx(192, abs=1.5)]


def test_minutes_count_playing_and_training_only(tmp_path: Path) -> None:
    stage = Stage(tmp_path, minutes=0.1)
    stage.script = {3: [Pause(), Evaluate(episodes=8000), Resume()]}  # a thousand seconds
    stage.session.run()
    assert stage.of(RunFinished)[0].elapsed_s == pytest.approx(6, abs=1.2)
    assert stage.events[-1].at_s > 1000


@pytest.mark.parametrize(
    ("limit", "words"),
    [({"minutes": 0.05}, "3 of 3 s"), ({"episodes": 16}, "16 of 16 episodes")],
    ids=["minutes", "episodes"],
)
def test_a_limit_that_has_passed_when_a_run_is_resumed_is_told(
    tmp_path: Path, limit: dict[str, Any], words: str
) -> None:
    first = Stage(tmp_path, **limit)
    first.session.run()
    assert first.of(WarningRaised) == []
    again = Stage(tmp_path, resume=True, **limit)
    again.builders.saved.extend(first.builders.saved)
    assert again.session.run() == "stopped"
    (warning,) = again.of(WarningRaised)
    assert f"This run has played {words}, so it ends here" in warning.message
    assert again.steps == 0


def test_a_disk_that_is_full_does_not_end_a_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8, faults={"save": FULL})
    stage.script = {2: [SaveCheckpoint()]}
    stage.also_before_step = lambda rollout: (
        stage.builders.faults.clear() if rollout.episodes == 6 else None
    )
    stage.session.run()
    assert "No space left" in stage.of(WarningRaised)[0].message
    assert len(stage.of(UpdateFinished)) == 1


def test_a_full_disk_is_warned_of_once_tried_soon_again_and_its_end_is_reported(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, episodes=80, faults={"save": FULL})  # ten updates, 1.5 s each
    stage.also_before_step = lambda rollout: (
        stage.builders.faults.clear() if stage.learner.updates == 8 else None
    )
    assert stage.session.run() == "stopped"
    full, again = [event.message for event in stage.of(WarningRaised)]
    assert "No space left on device. The run goes on, and tries again every 5 s." in full
    assert [event.unwritten for event in stage.of(WarningRaised)] == [True, False]
    assert again == "A checkpoint could be written again."
    assert stage.of(CheckpointSaved)[0].update == 9  # after 5 s, and not after 60
    assert len(stage.of(UpdateFinished)) == 10


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "RETRY_S", 0.0)


def test_the_last_checkpoint_waits_for_space_which_is_shown(tmp_path: Path, at_once: None) -> None:
    stage = Stage(tmp_path, episodes=8, faults={"save": FULL})
    waits: list[str] = []
    wait = stage.session.inbox.wait

    def waited(timeout_s: float | None = None) -> None:
        waits.append(stage.events[-1].detail)
        if len(waits) == 3:
            stage.builders.faults.clear()
        wait(timeout_s)

    stage.session.inbox.wait = waited  # type: ignore[method-assign]
    assert stage.session.run() == "stopped"
    assert len(waits) == 3
    assert waits[0].startswith("Waiting for space for the last checkpoint")
    assert "stop again to end without it" in stage.of(WarningRaised)[1].message
    assert len(stage.of(RunFinished)) == 1


def test_a_last_checkpoint_that_cannot_be_written_fails_the_run_after_so_many_attempts(
    tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ATTEMPTS", 5)
    stage = Stage(tmp_path, episodes=8, faults={"save": FULL})
    stage.session.inbox.wait = lambda timeout_s=None: waits.append(timeout_s)  # type: ignore[method-assign]
    waits: list[float | None] = []
    assert stage.session.run() == "failed"
    assert len(waits) == session.ATTEMPTS - 1
    message = stage.of(SessionFailed)[0].message
    assert message.endswith(
        "No space left on device. What was learnt since the checkpoint before it is lost."
    )


def test_a_second_stop_ends_the_wait_for_space(tmp_path: Path) -> None:
    stage = Stage(tmp_path, faults={"save": FULL})
    stage.script = {2: [Stop(), Pause(), Stop()]}
    assert stage.session.run() == "failed"  # and at once, or this test would take ten minutes
    assert "is lost" in stage.of(SessionFailed)[0].message


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


def test_a_prompt_that_was_changed_live_is_still_there_in_a_resumed_run_and_in_its_settings(
    tmp_path: Path,
) -> None:
    before = Stage(tmp_path, episodes=8, system_prompt="begun")
    before.script = {2: [SetSystemPrompt(system_prompt="changed")]}
    before.session.run()
    assert run_store.read_config(tmp_path).system_prompt == "begun"
    after = Stage(tmp_path, episodes=16, resume=True, system_prompt=None)
    after.builders.saved.extend(before.builders.saved)
    after.session.run()
    assert after.of(RunStarted)[0].system_prompt == "changed"
    assert run_store.read_config(tmp_path).system_prompt == "changed"


def test_a_run_that_goes_on_from_another_checkpoint_says_so(tmp_path: Path) -> None:
    before = Stage(tmp_path, episodes=2)
    before.session.run()
    after = Stage(tmp_path, episodes=4, resume=True, note="The latest checkpoint is broken.")
    after.builders.saved.extend(before.builders.saved)
    after.session.run()
    assert [warning.message for warning in after.of(WarningRaised)] == [
        "The latest checkpoint is broken."
    ]


def test_states_are_drawn_as_long_as_somebody_wants_to_see_them(tmp_path: Path) -> None:
    stage, drawn = Stage(tmp_path, episodes=8), []
    stage.script = {1: [DrawStates(on=True)], 3: [DrawStates(on=False)]}
    stage.also_before_step = lambda rollout: drawn.append(rollout.drawing)
    stage.session.run()
    assert drawn == [False, True, True, False]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("agent", UsageError("There is no agent 'coin'.")),
        ("model", ModelLoadError("Model 'x' is not on this machine.")),
    ],
)
def test_a_known_error_is_reported_in_its_own_sentence(
    tmp_path: Path, where: str, error: Exception
) -> None:
    stage = Stage(tmp_path, faults={where: error})
    assert stage.session.run() == "failed"
    assert stage.events[-1].message == str(error)
    assert stage.phases() == ["loading", "failed"]
    assert stage.session.error is error


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


def test_a_failure_is_reported_though_nothing_can_be_saved(tmp_path: Path) -> None:
    stage = Stage(tmp_path, faults={"save": ZeroDivisionError("save")})

    def breaks(rollout: Rollout) -> None:
        raise RecursionError("deep")

    stage.also_before_step = breaks
    stage.session.run()
    assert "RecursionError: deep" in stage.events[-1].message


def test_a_failure_is_reported_and_what_was_learnt_saved_though_another_one_follows(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)

    def lost() -> None:
        raise ZeroDivisionError("lost")

    def breaks(rollout: Rollout) -> None:
        if rollout.episodes == 10:
            stage.rollout.emit_corrections = lost  # type: ignore[method-assign]
            raise RecursionError("deep")

    stage.also_before_step = breaks
    assert stage.session.run() == "failed"
    assert stage.builders.saved[-1]["episodes"] == 10
    assert "RecursionError: deep" in stage.events[-1].message


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=6)
    stage.script = {2: [StartRun(protocol=1, config=stage.config)]}
    assert stage.session.run() == "stopped"
    assert (len(stage.of(RunStarted)), stage.of(WarningRaised)) == (1, [])


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
