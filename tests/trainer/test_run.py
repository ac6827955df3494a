"""What a session changes of its run, on fakes: settings, roll backs, updates that are ended early, warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llamagym_tui.errors import StoodStill
from llamagym_tui.protocol.commands import (
    ChangeSettings,
    Evaluate,
    Pause,
    Resume,
    RollBack,
    SetMode,
    SetSystemPrompt,
    Stop,
)
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    RolledBack,
    RunFinished,
    RunStarted,
    SettingsChanged,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.runs import run_store
from llamagym_tui.settings import GenerationConfig, PPOConfig
from tests.fake_parts import EPISODES_A_BATCH, Learner, Stage

STEPS_A_BATCH = EPISODES_A_BATCH // 2
BROKEN = {"policy_loss": float("nan")}
"""Figures of a collapse."""


def warnings(stage: Stage) -> list[str]:
    return [event.message for event in stage.of(WarningRaised)]


def break_updates(stage: Stage, *updates: int) -> None:
    """Let updates of these numbers, counted from 1 over the session, measure nonsense."""
    stage.also_before_step = lambda rollout: (
        stage.learner.figures.clear()
        or stage.learner.figures.update(BROKEN if len(stage.learner.batches) + 1 in updates else {})
    )


def test_an_update_that_moved_nothing_ends_the_run_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, episodes=100)

    def stands_still(learner: Learner, *args: Any, **given: Any) -> Any:
        raise StoodStill("Update 1 has left every weight of the policy where it was: by a test.")

    monkeypatch.setattr(Learner, "update", stands_still)
    assert stage.session.run() == "failed"
    assert isinstance(stage.session.error, StoodStill)
    assert stage.of(CheckpointSaved)


# The first batch


def test_a_first_batch_that_is_played_slowly_ends_with_the_turns_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamagym_tui.trainer.session.FIRST_BATCH_S", 0.25)
    monkeypatch.setattr("llamagym_tui.trainer.session.SMALLEST_BATCH", 1)

    def seen(measured: dict[str, str]) -> list[tuple[int, bool]]:
        found: list[tuple[int, bool]] = []
        stage = Stage(tmp_path / str(len(measured)), episodes=6, measured=measured)
        stage.also_before_step = lambda rollout: found.append(
            (rollout.batch_turns, rollout.cuts_episodes)
        )
        stage.session.run()
        return found

    # Two turns a step of an eighth of a second, of 1,024 that are wanted.
    assert seen({"ppo.batch_size": ""}) == [(1024, False), (1024, False), (4, True)]
    assert seen({}) == [(1024, False)] * 3, "its size is given"


# Settings


def test_a_change_is_put_into_effect_and_confirmed_after_a_checkpoint(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=24)
    stage.script = {6: [ChangeSettings(changes={"ppo.clip_range": 0.1, "ppo.batch_size": 64})]}
    stage.session.run()
    assert (stage.learner.config.clip_range, stage.rollout.batch_turns) == (0.1, 64)
    at = stage.events.index(stage.of(SettingsChanged)[0])
    assert isinstance(stage.events[at - 1], CheckpointSaved)
    changed = stage.events[at]
    assert changed.changes == {"ppo.clip_range": 0.1, "ppo.batch_size": 64}
    assert stage.rollout.restarts == 0


def test_a_changed_learning_rate_is_the_one_from_now_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.script = {2: [ChangeSettings(changes={"ppo.lr": 3e-4})]}
    stage.session.run()
    assert stage.of(SettingsChanged)[0].changes == {"ppo.lr": 3e-4, "ppo.lr_final": 3e-4}
    assert (stage.learner.config.lr, stage.learner.config.lr_final) == (3e-4, 3e-4)


@pytest.mark.parametrize(
    "changes", [{"generation.temperature": 0.5}, {"n_envs": 7}, {"ppo.learner": "grpo"}]
)
def test_a_batch_is_of_one_distribution_so_the_one_under_way_is_dropped(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    stage = Stage(tmp_path, episodes=24)
    stage.script = {
        3: [ChangeSettings(changes=changes)]
    }  # queued as the third step begins, done when it has ended
    stage.session.run()
    assert stage.rollout.restarts == 1
    first = stage.of(UpdateFinished)[0]
    assert (len(stage.learner.batches[0]), first.episodes) == (
        EPISODES_A_BATCH,
        6 + EPISODES_A_BATCH,
    )
    assert first.stats.rollout_s == pytest.approx(STEPS_A_BATCH * 0.125)
    assert stage.policy.generation == GenerationConfig(
        temperature=changes.get("generation.temperature", 1.0)
    )
    assert stage.rollout.n_envs == changes.get("n_envs", 2)
    assert stage.rollout.group_size == (8 if "ppo.learner" in changes else 1)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 3}, "seed"),
        ({"ppo.lr": -1.0}, "ppo.lr"),
        ({"ppo.clip_range": 0.1, "generation.temperature": 0.0}, "generation.temperature"),
    ],
)
def test_a_change_that_may_not_be_is_refused_whole_in_a_sentence(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.script = {2: [ChangeSettings(changes=changes)]}
    assert stage.session.run() == "stopped"
    assert named in warnings(stage)[0]
    assert stage.of(SettingsChanged) == []
    assert (stage.learner.config, stage.rollout.restarts) == (stage.config.ppo, 0)


def test_a_run_without_a_reference_cannot_be_held_near_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8, ppo=PPOConfig(kl_coef=0.0, kl_coef_final=0.0))
    stage.also_before_step = lambda rollout: setattr(stage.learner, "reference", None)
    stage.script = {
        2: [ChangeSettings(changes={"ppo.kl_coef": 0.1}), ChangeSettings(changes={"ppo.lr": 1e-4})]
    }
    stage.session.run()
    assert "without a KL to the reference" in warnings(stage)[0]
    assert stage.learner.config.lr == 1e-4


def test_a_resumed_run_has_its_changed_settings_and_the_folder_those_it_began_with(
    tmp_path: Path,
) -> None:
    before = Stage(tmp_path, episodes=8)
    before.script = {2: [ChangeSettings(changes={"ppo.lr": 3e-4, "n_envs": 6})]}
    before.session.run()
    began_with = replace(before.config, history="all")
    assert run_store.read_config(tmp_path) == began_with
    after = Stage(tmp_path, episodes=16, resume=True)
    after.builders.saved.extend(before.builders.saved)
    after.session.run()
    assert (after.learner.config.lr, after.rollout.n_envs, after.of(RunStarted)[0].n_envs) == (
        3e-4,
        6,
        6,
    )
    (seen,) = after.of(SettingsChanged)
    assert seen.changes == {"ppo.lr": 3e-4, "ppo.lr_final": 3e-4, "n_envs": 6}
    assert run_store.last_settings(tmp_path).n_envs == 6
    again = Stage(tmp_path, episodes=24, resume=True, n_envs=9)  # said anew
    again.builders.saved.extend(after.builders.saved)
    again.session.run()
    assert (again.learner.config.lr, again.of(RunStarted)[0].n_envs) == (3e-4, 9)
    last = run_store.last_settings(tmp_path)
    assert (last.n_envs, last.ppo.lr) == (9, 3e-4)


# Roll back


def test_a_checkpoint_is_good_once_the_update_after_it_has_shown_nothing_wrong(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, episodes=16)
    good_after: list[int] = []
    stage.also_before_step = lambda rollout: good_after.append(len(stage.builders.good))
    stage.session.run()
    assert good_after == [0] * 8  # saved after the first update, and judged by the second
    assert [counters["updates"] for counters in stage.builders.good] == [1]


def test_a_person_rolls_back_to_the_last_good_checkpoint(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=80)
    stage.script = {STEPS_A_BATCH * 5 + 2: [RollBack()]}
    stage.session.run()
    (rolled,) = stage.of(RolledBack)
    assert (rolled.update, rolled.reason) == (1, "requested")
    assert len(stage.learner.prompts) == 2  # the good checkpoint may be of another prompt
    assert [event.update for event in stage.of(UpdateFinished)][:7] == [1, 2, 3, 4, 5, 2, 3]
    assert stage.rollout.restarts == 1
    assert stage.of(RunFinished)[0].episodes == 80  # what was played was played
    after = stage.events[stage.events.index(rolled) + 1]
    assert isinstance(after, CheckpointSaved)  # a crash now would not bring back what was left
    assert stage.builders.saved[-1]["episodes"] == 80


def test_a_roll_back_without_a_good_checkpoint_is_refused_in_a_sentence(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8)
    stage.script = {2: [RollBack()]}
    assert stage.session.run() == "stopped"
    assert warnings(stage) == ["There is no good checkpoint."]
    assert stage.rollout.restarts == 0


def test_a_collapse_is_warned_of_once_and_the_last_good_checkpoint_stays(tmp_path: Path) -> None:
    stage = Stage(tmp_path, minutes=3.0)
    break_updates(stage, *range(50, 54))
    stage.session.run()
    (warning,) = stage.of(WarningRaised)
    assert warning.collapsed
    assert warning.message.startswith("The policy has collapsed: Losses are not finite")
    assert stage.of(RolledBack) == []


@pytest.mark.parametrize(
    ("given", "is_known"),
    [
        ({}, True),
        ({"system_prompt": "Call tails."}, False),
        ({"generation": GenerationConfig(temperature=0.5)}, False),
    ],
)
def test_a_resumed_run_still_knows_how_well_it_played(
    tmp_path: Path, given: dict[str, Any], is_known: bool
) -> None:
    before = Stage(tmp_path, episodes=80)
    before.also_before_step = lambda rollout: before.learner.figures.update(mean_return=0.5)
    before.session.run()
    after = Stage(tmp_path, episodes=1000, resume=True, **given)
    after.builders.saved.extend(before.builders.saved)
    after.also_before_step = lambda rollout: after.learner.figures.update(mean_return=-50.0)
    after.session.run()
    assert any("mean return fell from 0.500" in message for message in warnings(after)) is is_known
    assert (
        bool(after.builders.good) is not is_known
    )  # or what it had fallen to would take the good one's place


# Long updates


@pytest.mark.parametrize(
    ("command", "ends_in", "made"), [(Stop(), "stopped", 2), (Pause(), "paused", 4)]
)
def test_a_stop_ends_an_update_after_the_minibatch_under_way_and_a_pause_waits_for_its_end(
    tmp_path: Path, command: Any, ends_in: str, made: int
) -> None:
    stage = Stage(tmp_path)
    stage.script = {STEPS_A_BATCH + 1: [Stop()], 1: []}

    def ask(number: int) -> None:
        if number == 2:
            stage.command_queue.put(command)
            if isinstance(command, Pause):
                stage.command_queue.put(Resume())

    stage.also_before_step = lambda rollout: setattr(stage.learner, "before_minibatch", ask)
    assert stage.session.run() == "stopped"
    assert len(stage.of(UpdateFinished)) == 1
    assert stage.learner.minibatches == made  # the stop comes in the second minibatch of four
    assert stage.phases()[2:5] == ["updating", "rolling_out", ends_in]


def test_other_commands_wait_for_the_end_of_an_update(tmp_path: Path) -> None:
    stage = Stage(tmp_path, episodes=8)

    def ask(number: int) -> None:
        if number == 1:
            stage.command_queue.put(Evaluate(episodes=1))
            stage.command_queue.put(SetMode(mode="train"))

    stage.also_before_step = lambda rollout: setattr(stage.learner, "before_minibatch", ask)
    stage.session.run()
    assert stage.of(UpdateFinished)
    assert stage.learner.minibatches == 4


@pytest.mark.parametrize("has_adapters", [True, False])
def test_a_prompt_with_an_adapter_of_its_own_begins_a_batch(
    tmp_path: Path, has_adapters: bool
) -> None:
    stage = Stage(tmp_path, episodes=20)
    restarts: list[int] = []

    def set_up(rollout: Any) -> None:
        stage.learner.has_adapters = has_adapters
        rollout.restart = lambda: restarts.append(rollout.episodes)

    stage.also_before_step = set_up
    stage.script = {2: [SetSystemPrompt(system_prompt="Always stick."), Stop()]}
    stage.session.run()
    assert stage.learner.prompts[-1] == "Always stick."
    assert len(restarts) == has_adapters
    assert warnings(stage) == []
