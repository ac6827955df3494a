"""A session on the real parts: switching modes, and what enters a batch."""

from __future__ import annotations

import hashlib
import queue
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.protocol.commands import (
    AnyCommand,
    ChangeSettings,
    Evaluate,
    RollBack,
    SetMode,
    SetSystemPrompt,
    Stop,
)
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    EpisodesCounted,
    EvaluationFinished,
    Event,
    RolledBack,
    RunFinished,
    SettingsChanged,
    UpdateFinished,
)
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.settings import PPOConfig, RunConfig
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.session import Session

pytest.importorskip("torch")


class Watched(Builders):
    """The real parts; every batch is noted, and a script runs by the number of steps."""

    batches: list[list[Any]]
    weights: list[str]
    """Of the model before each step, and at the end: a digest of every bit."""
    steps: int
    script: dict[int, list[AnyCommand]]
    command_queue: queue.SimpleQueue[AnyCommand]

    def learner(self, policy: Any) -> Any:
        learner = super().learner(policy)
        update = learner.update

        def noted(trajectories: Any, **hooks: Any) -> Any:
            self.batches.append(list(trajectories))
            return update(trajectories, **hooks)

        learner.update = noted  # type: ignore[method-assign]
        return learner

    def rollout(self, agent: Any, policy: Any, *, seed: int, emit: Any) -> Any:
        rollout = super().rollout(agent, policy, seed=seed, emit=emit)
        step = rollout.step

        def scripted() -> Any:
            self.steps += 1
            for command in self.script.get(self.steps, []):
                self.command_queue.put(command)
            self.weights.append(digest(policy))
            return step()

        rollout.step = scripted  # type: ignore[method-assign]
        return rollout


def play(
    run_dir: Path, model: str, script: dict[int, list[AnyCommand]], **settings: Any
) -> tuple[Watched, list[Event]]:
    config = RunConfig(
        agent="blackjack", model=model, run_dir=str(run_dir), n_envs=16, threads=1,
        ppo=PPOConfig(batch_size=48, mini_batch_size=24, epochs=1), **settings,
    )  # fmt: skip
    seen: list[Event] = []
    builders = Watched(config)
    command_queue: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
    for name, value in {
        "batches": [],
        "weights": [],
        "steps": 0,
        "script": script,
        "command_queue": command_queue,
    }.items():
        object.__setattr__(builders, name, value)
    session = Session(
        config, RunStore.create(config), command_queue, sinks=[seen.append], builders=builders
    )
    assert session.run() == "stopped", session.error
    builders.weights.append(digest(session.policy))
    return builders, seen


def digest(policy: Any) -> str:
    """Of every weight of a policy, bit by bit."""
    found = hashlib.sha256()
    for weight in policy.model.parameters():
        found.update(weight.detach().numpy().tobytes())
    return found.hexdigest()


def first_ratios(seen: list[Event]) -> list[float]:
    return [event.stats.first_ratio for event in seen if isinstance(event, UpdateFinished)]


def test_no_episode_of_inference_enters_a_batch_and_no_weight_moves(
    tmp_path: Path, model: str
) -> None:
    script = {2: [SetMode(mode="inference")], 12: [SetMode(mode="train")], 26: [Stop()]}
    builders, seen = play(tmp_path, model, script)
    assert len(set(builders.weights[:12])) == 1
    assert len(builders.batches) > 1
    assert len(set(builders.weights)) == 1 + len(builders.batches)
    counted = [event for event in seen if isinstance(event, EpisodesCounted)]
    returns = {
        mode: sum(len(e.returns) for e in counted if e.mode == mode)
        for mode in ("train", "inference")
    }
    trained = sum(len(batch) for batch in builders.batches)
    assert returns["inference"] >= 10 * 5
    # Left out are those of the two steps before inference, and of the batch under way at the end.
    assert trained <= returns["train"] <= trained + 2 * 16 + 48 + 16


def test_an_evaluation_leaves_the_run_as_it_would_have_been(tmp_path: Path, model: str) -> None:
    plain, _ = play(tmp_path / "plain", model, {}, episodes=100)
    evaluated, seen = play(
        tmp_path / "evaluated", model, {5: [Evaluate(episodes=20, greedy=False)]}, episodes=100
    )
    assert [event.episodes for event in seen if isinstance(event, EvaluationFinished)] == [20]
    assert evaluated.weights == plain.weights


def test_an_episode_is_trained_under_the_prompt_that_it_began_with(
    tmp_path: Path, model: str
) -> None:
    builders, seen = play(
        tmp_path, model, {3: [SetSystemPrompt(system_prompt="Hit below 13.")]}, episodes=100
    )
    prompts = {each.segments[0].prefix for batch in builders.batches for each in batch}
    assert len(prompts) == 2
    counted = [event for event in seen if isinstance(event, EpisodesCounted)]
    assert {event.prompt_version for event in counted} == {0, 1}
    assert isinstance(seen[-1], RunFinished)


@pytest.mark.slow
def test_a_run_ends_exactly_at_its_episodes_and_a_resumed_one_has_the_weights_that_it_left(
    tmp_path: Path, model: str
) -> None:
    before, seen = play(tmp_path, model, {}, episodes=61)
    after, _ = play(tmp_path, model, {}, episodes=64, resume=True)
    assert len(before.batches) > 0
    assert isinstance(seen[-1], RunFinished)
    assert (seen[-1].updates, seen[-1].episodes) == (len(before.batches), 61)
    assert len(set(before.weights)) == 1 + len(before.batches)
    assert after.weights[0] == before.weights[-1]


def test_a_roll_back_brings_back_every_bit_and_the_next_update_begins_at_ratio_one(
    tmp_path: Path, model: str
) -> None:
    builders, seen = play(tmp_path, model, {12: [RollBack()], 20: [Stop()]})
    (rolled,) = [event for event in seen if isinstance(event, RolledBack)]
    saved = next(event for event in seen if isinstance(event, CheckpointSaved))
    assert (rolled.update, saved.update) == (1, 1)
    changes = [index for index, (a, b) in enumerate(pairwise(builders.weights)) if a != b]
    after_first = builders.weights[changes[0] + 1]
    assert builders.weights[11] != after_first == builders.weights[12]
    assert not (set(builders.weights[12:]) - {after_first}) & set(
        builders.weights[:12]
    )  # from there, another way
    assert max(first_ratios(seen)) < 1e-3
    versions = [{trajectory.policy_version for trajectory in batch} for batch in builders.batches]
    assert all(len(of_batch) == 1 for of_batch in versions)
    assert len({version for of_batch in versions for version in of_batch}) == len(versions)


@pytest.mark.parametrize(
    "changes",
    [
        {"generation.policy": "score"},
        pytest.param({"generation.temperature": 1.5}, marks=pytest.mark.slow),
        pytest.param({"n_envs": 9}, marks=pytest.mark.slow),
    ],
)
def test_a_setting_that_changes_amid_a_batch_leaves_the_first_ratio_at_one(
    tmp_path: Path, model: str, changes: dict[str, Any]
) -> None:
    script: dict[int, list[AnyCommand]] = {10: [ChangeSettings(changes=changes)], 25: [Stop()]}
    builders, seen = play(tmp_path, model, script)
    (changed,) = [at for at, event in enumerate(seen) if isinstance(event, SettingsChanged)]
    assert (
        0
        < sum(isinstance(event, UpdateFinished) for event in seen[:changed])
        < len(builders.batches) - 1
    )
    assert max(first_ratios(seen)) < 1e-3


def test_a_stop_ends_an_update_early_and_its_steps_are_saved(tmp_path: Path, model: str) -> None:
    learner_of = Watched.learner
    steps: list[int] = []

    def stopping(self: Watched, policy: Any) -> Any:
        learner = learner_of(self, policy)
        optimizer = learner.steps.optimizer
        step = optimizer.step

        def stepped(*arguments: Any) -> Any:
            steps.append(1)
            self.command_queue.put(Stop())
            return step(*arguments)

        optimizer.step = stepped
        return learner

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watched, "learner", stopping)
        builders, seen = play(tmp_path, model, {})
    assert sum(isinstance(event, UpdateFinished) for event in seen) == 1
    assert len(steps) == 1
    assert len(builders.batches) == 1
    assert [event.update for event in seen if isinstance(event, CheckpointSaved)] == [1]
