"""A session on the real parts: switching modes, and what enters a batch."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.config import PPOConfig, RunConfig
from llamagym_tui.protocol.commands import AnyCommand, Evaluate, SetMode, SetSystemPrompt, Stop
from llamagym_tui.protocol.events import EpisodesCounted, EvaluationFinished, Event, RunFinished
from llamagym_tui.run_store import RunStore
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.phases import Phase
from llamagym_tui.trainer.session import Session

pytest.importorskip("torch")


class Watched(Builders):
    """The real parts; every batch is noted, and a script runs by the number of steps."""

    batches: list[list[Any]]
    weights: list[float]
    steps: int
    script: dict[int, list[AnyCommand]]
    asked: queue.SimpleQueue[AnyCommand]

    def ppo(self, policy: Any) -> Any:
        ppo = super().ppo(policy)
        update = ppo.update

        def noted(trajectories: Any, **hooks: Any) -> Any:
            self.batches.append(list(trajectories))
            return update(trajectories, **hooks)

        ppo.update = noted  # type: ignore[method-assign]
        return ppo

    def rollout(self, agent: Any, policy: Any, *, seed: int, emit: Any) -> Any:
        rollout = super().rollout(agent, policy, seed=seed, emit=emit)
        step = rollout.step

        def scripted() -> Any:
            self.steps += 1
            for command in self.script.get(self.steps, []):
                self.asked.put(command)
            self.weights.append(sum(float(p.detach().double().sum()) for p in policy.model.parameters()))
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
    told: list[Event] = []
    builders = Watched(config)
    asked: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
    for name, value in {"batches": [], "weights": [], "steps": 0, "script": script, "asked": asked}.items():
        object.__setattr__(builders, name, value)
    session = Session(config, RunStore.create(config), asked, sinks=[told.append], builders=builders)
    assert session.run() is Phase.STOPPED, session.error
    return builders, told


def test_no_episode_of_inference_enters_a_batch_and_no_weight_moves(tmp_path: Path, model: str) -> None:
    script = {2: [SetMode(mode="inference")], 22: [SetMode(mode="train")], 60: [Stop()]}
    builders, told = play(tmp_path, model, script)
    assert len(set(builders.weights[:22])) == 1
    assert len(builders.batches) > 1
    # Weights are read before each step: the stop may come between the last update and a next step.
    assert len(builders.batches) <= len(set(builders.weights)) <= 1 + len(builders.batches)
    counted = [event for event in told if isinstance(event, EpisodesCounted)]
    returns = {mode: sum(len(e.returns) for e in counted if e.mode == mode) for mode in ("train", "inference")}
    trained = sum(len(batch) for batch in builders.batches)
    assert returns["inference"] >= 20 * 5
    assert trained <= returns["train"] <= trained + 48


def test_an_evaluation_leaves_the_run_as_it_would_have_been(tmp_path: Path, model: str) -> None:
    plain, _ = play(tmp_path / "plain", model, {}, episodes=150)
    evaluated, told = play(tmp_path / "evaluated", model, {5: [Evaluate(episodes=20, greedy=False)]}, episodes=150)
    assert [event.episodes for event in told if isinstance(event, EvaluationFinished)] == [20]
    assert evaluated.weights == plain.weights


def test_an_episode_is_trained_under_the_prompt_that_it_began_with(tmp_path: Path, model: str) -> None:
    builders, told = play(tmp_path, model, {3: [SetSystemPrompt(system_prompt="Hit below 13.")]}, episodes=150)
    versions = [trajectory.prompt_version for batch in builders.batches for trajectory in batch]
    assert set(versions) == {0, 1}
    counted = [event for event in told if isinstance(event, EpisodesCounted)]
    assert {event.prompt_version for event in counted} == {0, 1}
    assert isinstance(told[-1], RunFinished)


def test_a_resumed_run_has_the_weights_that_it_left(tmp_path: Path, model: str) -> None:
    before, told = play(tmp_path, model, {}, episodes=100)
    after, _ = play(tmp_path, model, {}, episodes=200, resume=True)
    assert len(before.batches) > 0
    assert isinstance(told[-1], RunFinished)
    assert told[-1].updates == len(before.batches)
    assert len(set(before.weights)) == 1 + len(before.batches)  # a step followed the last update
    assert after.weights[0] == pytest.approx(before.weights[-1], rel=1e-9)
