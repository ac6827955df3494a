"""A session that is taught by demonstrations, on fakes: when it trains, what it refuses, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import RunConfig, WarmStartStats
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.training_data import shipped, training_data
from llamagym_tui.errors import DemoFileError, RunStoreError, UsageError
from llamagym_tui.game.agent_base import prompt_sha256
from llamagym_tui.game.chat import assistant, system, user
from llamagym_tui.protocol.commands import (
    CancelEvaluation,
    CancelWarmStart,
    Pause,
    Resume,
    RollBack,
    Stop,
    WarmStart,
)
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    DemonstrationsRead,
    EvaluationCancelled,
    EvaluationFinished,
    PhaseChanged,
    RolledBack,
    RunFinished,
    SessionFailed,
    UpdateFinished,
    WarmStartEvaluated,
    WarmStartFinished,
    WarmStartProgressed,
    WarningRaised,
)
from llamagym_tui.state.reduce import reduce, warm_start_text
from llamagym_tui.state.run import initial_state
from llamagym_tui.trainer.evaluations import WARM_START_S
from llamagym_tui.trainer.probes.map_policy import PolicyMapper
from tests.fake_parts import CoinAgent, Stage


def call(seed: int, **changes: Any) -> demo_files.Demonstration:
    """One call of the coin."""
    prompt = changes.pop("prompt", "Call the coin.")
    fields: dict[str, Any] = {
        "messages": [system(prompt), user("Heads or tails?"), assistant("1")],
        "agent": "coin",
        "env_id": "Coin-v0",
        "env_kwargs": {},
        "seed": seed,
        "actions": [1],
        "rewards": [1.0],
        "episode_return": 1.0,
        "length": 1,
        "end": "terminated",
        "source": "human",
        "model": None,
        "prompt_sha256": prompt_sha256(prompt),
        "recorded_at": "2026-01-31T12:00:00Z",
    }
    return demo_files.Demonstration(**{**fields, **changes})


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "coin.jsonl"
    demo_files.write(path, [call(seed) for seed in range(3)])
    return str(path)


def test_a_run_may_begin_with_a_warm_start(tmp_path: Path, file: str) -> None:
    stage = Stage(tmp_path / "run", sft_warm_start=True, sft_data=file, episodes=4)
    assert stage.session.run() == "stopped"
    assert stage.phases()[:4] == ["loading", "rolling_out", "warm_starting", "rolling_out"]
    (finished,) = stage.of(WarmStartFinished)
    assert (finished.stats.demonstrations, finished.stats.cancelled) == (3, False)
    assert [len(conversation) for conversation in stage.taught] == [3, 3, 3]
    before, after = (stage.events.index(saved) for saved in stage.of(CheckpointSaved)[:2])
    assert before < stage.events.index(finished) < after


def test_minutes_count_what_is_played_after_a_warm_start(tmp_path: Path, file: str) -> None:
    stage = Stage(tmp_path / "run", sft_warm_start=True, sft_data=file, minutes=0.1)

    def take_long(step: int) -> None:
        stage.builders.clock.now += 1000.0

    stage.builders.made["before_sft_step"] = take_long
    stage.session.run()
    (finished,) = stage.of(RunFinished)
    assert finished.elapsed_s == pytest.approx(6, abs=1.2)
    assert (finished.episodes > 8, finished.updates > 0) == (True, True)


@pytest.mark.parametrize("is_attended", [True, False], ids=["app", "headless"])
def test_a_warm_start_for_which_there_is_too_little_memory_is_refused_and_costs_no_run(
    tmp_path: Path, file: str, is_attended: bool
) -> None:
    stage = Stage(tmp_path / "run", episodes=4, faults={"warm_start": UsageError("too little")})
    stage.session._is_attended = is_attended
    stage.script = {1: [WarmStart(sft_data=file)]}
    assert stage.session.run() == ("stopped" if is_attended else "failed")
    if is_attended:
        (refused,) = [each for each in stage.of(WarningRaised) if each.refused == "warm_start"]
        assert "No warm start: too little" in refused.message
    else:
        assert "too little" in stage.of(SessionFailed)[0].message


def test_the_taught_policy_is_mapped_before_anything_else_is_done(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path / "run", sft_warm_start=True, sft_data=file, episodes=4)
    mapped_in: list[str] = []
    monkeypatch.setattr(
        PolicyMapper, "map", lambda *_, **options: mapped_in.append(stage.phases()[-1])
    )
    stage.session.run()
    assert mapped_in[0] == "warm_starting"


def test_a_resumed_run_is_not_taught_again_and_gets_its_reference_back(
    tmp_path: Path, file: str
) -> None:
    settings: dict[str, Any] = {"sft_warm_start": True, "sft_data": file}
    first = Stage(tmp_path / "run", episodes=4, **settings)
    first.session.run()
    again = Stage(tmp_path / "run", episodes=8, resume=True, **settings)
    again.builders.saved.extend(first.builders.saved)
    again.session.run()
    assert again.of(WarmStartFinished) == []
    assert again.restored_start


def test_a_warm_start_amid_a_run_drops_the_batch_under_way(tmp_path: Path, file: str) -> None:
    stage = Stage(tmp_path / "run", episodes=16)
    stage.script = {3: [WarmStart(sft_data=file)]}
    stage.session.run()
    # Of the ten episodes after it, eight are a batch; the six before it are in none.
    assert len(stage.learner.batches) == 1
    assert {ended.policy_version for ended in stage.learner.batches[0]} == {1}


def test_a_warm_start_while_paused_stays_paused(tmp_path: Path, file: str) -> None:
    stage = Stage(tmp_path / "run", episodes=4)
    stage.script = {1: [Pause(), WarmStart(sft_data=file), Resume()]}
    stage.session.run()
    assert stage.phases()[2:6] == ["paused", "warm_starting", "paused", "rolling_out"]


@pytest.mark.parametrize("command", [CancelWarmStart(), Stop()])
def test_a_warm_start_can_be_cancelled_and_what_was_learnt_stays(
    tmp_path: Path, file: str, command: Any
) -> None:
    stage = Stage(tmp_path / "run", episodes=4)
    stage.script = {1: [WarmStart(sft_data=file, episodes=8)]}
    stage.builders.made["before_sft_step"] = lambda step: (
        stage.command_queue.put(command) if step == 1 else None
    )
    assert stage.session.run() == "stopped"
    (finished,) = stage.of(WarmStartFinished)
    assert (finished.stats.cancelled, finished.stats.steps) == (True, 2)
    assert stage.of(WarmStartEvaluated) == []


@pytest.mark.parametrize("command", [CancelWarmStart(), Stop()])
def test_a_warm_start_that_is_cancelled_before_it_began_trains_nothing(
    tmp_path: Path, file: str, command: Any
) -> None:
    stage = Stage(tmp_path / "run", episodes=8)
    stage.script = {2: [WarmStart(sft_data=file, episodes=10**9), command]}
    stage.session.run()
    assert (stage.of(WarmStartFinished), stage.phases()[-1]) == ([], "stopped")
    assert [
        event.message for event in stage.of(WarningRaised) if event.refused == "warm_start"
    ] == ["The warm start was cancelled; nothing was trained."]


def test_it_is_evaluated_before_and_after_on_the_same_seeds_within_a_time(
    tmp_path: Path, file: str
) -> None:
    stage = Stage(tmp_path / "run", episodes=8)
    stage.script = {2: [WarmStart(sft_data=file, episodes=12)]}
    stage.session.run()
    (compared,) = stage.of(WarmStartEvaluated)
    assert (compared.before.episodes, compared.after.episodes, compared.after.greedy) == (
        12,
        12,
        False,
    )
    assert stage.phases()[2:7] == [
        "evaluating",
        "rolling_out",
        "warm_starting",
        "rolling_out",
        "evaluating",
    ]
    assert stage.events.index(compared) > stage.events.index(stage.of(WarmStartFinished)[0])
    assert (stage.evaluated["limit_s"], stage.of(EvaluationFinished)) == (WARM_START_S, [])


def test_an_evaluation_that_is_out_of_time_is_compared_with_none(tmp_path: Path, file: str) -> None:
    stage = Stage(tmp_path / "run", episodes=8)
    stage.script = {2: [WarmStart(sft_data=file, episodes=300)]}  # of 0.125 s each, and 3 · 10 s
    stage.session.run()
    assert "out of time with episodes under way" in stage.of(EvaluationCancelled)[0].why
    assert (len(stage.of(WarmStartFinished)), stage.of(WarmStartEvaluated)) == (1, [])


def test_an_evaluation_before_it_that_is_cancelled_leaves_the_training(
    tmp_path: Path, file: str
) -> None:
    stage = Stage(tmp_path / "run", episodes=8)
    stage.script = {2: [WarmStart(sft_data=file, episodes=10**9), CancelEvaluation()]}
    stage.session.run()
    assert (len(stage.of(WarmStartFinished)), len(stage.of(EvaluationCancelled))) == (1, 1)
    assert stage.of(WarmStartEvaluated) == []


def test_a_roll_back_takes_a_warm_start_back_until_a_batch_after_it_went_well(
    tmp_path: Path, file: str
) -> None:
    stage = Stage(tmp_path / "run", episodes=40)
    stage.script = {6: [WarmStart(sft_data=file), RollBack()]}
    stage.session.run()
    (back,) = stage.of(RolledBack)
    assert back.update == 1
    at = stage.events.index(back)
    assert (
        next(event.update for event in stage.events[at:] if isinstance(event, UpdateFinished)) == 2
    )
    assert stage.of(RunFinished)[0].episodes == 40

    later = Stage(tmp_path / "later", episodes=40)
    later.script = {6: [WarmStart(sft_data=file)]}
    later.session.run()
    saved = [id(checkpoint) for checkpoint in later.builders.saved]
    kept = [saved.index(id(checkpoint)) for checkpoint in later.builders.good]
    before = next(n for n in kept if later.builders.saved[n]["updates"] == 1)
    assert kept[kept.index(before) + 1] == before + 1, "the one that was written right after it"


def test_a_warm_start_without_room_for_a_way_back_is_made_with_a_warning(
    tmp_path: Path, file: str
) -> None:
    full = RunStoreError("No checkpoint was written in 'run': No space left on device.")
    stage = Stage(tmp_path / "run", episodes=8, faults={"keep_with_reference": full})
    stage.script = {2: [WarmStart(sft_data=file)]}
    stage.session.run()
    assert len(stage.of(WarmStartFinished)) == 1
    warnings = [event.message for event in stage.of(WarningRaised)]
    assert f"A roll back will not take this warm start back: {full}" in warnings


def test_a_run_that_was_killed_while_it_was_taught_at_its_start_is_taught_when_it_is_resumed(
    tmp_path: Path, file: str
) -> None:
    settings: dict[str, Any] = {"sft_warm_start": True, "sft_data": file}
    first = Stage(
        tmp_path / "run", episodes=4, faults={"warm_start": RuntimeError("killed")}, **settings
    )
    first.session.run()
    again = Stage(tmp_path / "run", episodes=8, resume=True, **settings)
    again.builders.saved.extend(first.builders.saved[:1])
    again.session.run()
    assert len(again.of(WarmStartFinished)) == 1
    assert [saved["awaits_warm_start"] for saved in again.builders.saved[1:]][:2] == [True, False]


def test_progress_is_reported_at_the_first_step_then_twice_a_second_at_most(
    tmp_path: Path, file: str
) -> None:
    stage = Stage(tmp_path / "run", sft_warm_start=True, sft_data=file, episodes=2)
    stage.session.run()
    assert [(event.step, event.steps, event.loss) for event in stage.of(WarmStartProgressed)] == [
        (1, 4, 1.0),
        (4, 4, 0.25),
    ]


def test_a_faulty_file_requested_during_a_run_is_refused_with_its_line(
    tmp_path: Path, file: str
) -> None:
    demo_files.append(Path(file), call(3, rewards=[0.5]))
    stage = Stage(tmp_path / "run", episodes=4)
    stage.script = {1: [WarmStart(sft_data=file)]}
    assert stage.session.run() == "stopped"
    (warning,) = stage.of(WarningRaised)
    assert warning.message.startswith(
        f"No warm start: {file}, line 4: The return is given as 1, but the rewards add"
    )
    assert stage.of(WarmStartFinished) == []


def test_a_run_that_is_to_begin_with_a_faulty_file_does_not_begin(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path / "run", sft_warm_start=True, sft_data=str(tmp_path / "none.jsonl"), episodes=4
    )
    assert stage.session.run() == "failed"
    assert stage.of(SessionFailed)[0].message.startswith("There is no file of demonstrations")
    assert stage.steps == 0


def test_demonstrations_under_another_prompt_are_warned_of(tmp_path: Path, file: str) -> None:
    demo_files.append(Path(file), call(3, prompt="Call it."))
    stage = Stage(tmp_path / "run", sft_warm_start=True, sft_data=file, episodes=2)
    stage.session.run()
    assert stage.of(WarningRaised)[-1].message.startswith(
        "1 of 4 demonstrations were recorded under another system"
    )


def test_what_is_trained_on_is_reported_before_it_is(tmp_path: Path, file: str) -> None:
    stage = Stage(tmp_path / "run", sft_warm_start=True, sft_data=file, episodes=2)
    stage.session.run()
    (read,) = stage.of(DemonstrationsRead)
    assert (read.path, read.episodes, read.turns, read.actions) == (
        file,
        3,
        3,
        {"heads": 0, "tails": 3},
    )
    # Their replies are a bare 1, where the agent's canonical reply is an object.
    assert (read.prompts, read.under_present_prompt, read.free_replies) == (1, 3, 3)
    few, one_sided, free = (event.message for event in stage.of(WarningRaised))
    assert few.startswith("3 episodes are few")
    assert one_sided.startswith("100% of the turns are tails")
    assert free.startswith("3 of 3 replies are more than their action")
    assert stage.events.index(read) < stage.events.index(stage.of(WarmStartProgressed)[0])


def test_episodes_of_another_environment_are_refused(file: str) -> None:
    demo_files.append(Path(file), call(3, env_id="Dice-v0"))
    with pytest.raises(
        DemoFileError, match=r"line 4: the episode is of Dice-v0, and CoinAgent plays Coin-v0"
    ):
        training_data(CoinAgent(), file)


def test_replies_that_the_agent_reads_otherwise_are_refused(file: str) -> None:
    demo_files.append(Path(file), call(3, actions=[0]))
    with pytest.raises(
        DemoFileError, match="line 4: Turn 1: the reply says 1, but the action was 0; nothing was"
    ):
        training_data(CoinAgent(), file)


def test_a_built_in_agent_has_the_file_that_ships_and_others_have_none() -> None:
    agent = BlackjackAgent()
    assert training_data(agent).path == shipped(agent)
    with pytest.raises(UsageError, match="No demonstrations ship for CoinAgent"):
        training_data(CoinAgent())


def test_the_screens_get_how_far_it_is_and_what_came_out() -> None:
    config = RunConfig(agent="coin", run_dir="r")
    state = reduce(
        initial_state(config),
        PhaseChanged(phase="warm_starting", detail="reading the demonstrations"),
    )
    state = reduce(state, WarmStartProgressed(step=12, steps=96, loss=0.0341))
    assert (state.phase, state.detail) == ("warm_starting", "step 12 of 96, loss 0.034")
    finished = WarmStartFinished(
        method="sft",
        stats=WarmStartStats(
            demonstrations=500,
            tokens=3124,
            steps=96,
            first_loss=0.17,
            last_loss=0.02,
            elapsed_s=40.2,
            cancelled=False,
        ),
    )
    state = reduce(state, finished)
    assert state.marks[-1].label == "warm start"
    assert (
        warm_start_text(finished)
        == "500 demonstrations, trained in 96 steps and 40 s; loss 0.170 → 0.020"
    )
