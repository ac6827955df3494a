"""Episodes that fail: dropped, counted and reported by the user's own line; no other episode is the worse for it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

import pytest

from llamagym_tui.errors import EnvError
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent, FaultyEnv
from tests.trainer.rollout.conftest import SEED


def faulty(fault: Callable[[FaultyEnv], float | None]) -> CountAgent:
    class Faulty(CountAgent):
        env_id = "LlamaFaulty-v0"
        env_kwargs = {"fault": fault}  # noqa: RUF012

    return Faulty()


def in_episode(number: int, env: FaultyEnv) -> bool:
    return env.seeds[-1] == episode_seed(SEED, number)


def line_of(function: Callable, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if text in line)


def fill(rollout: Rollout) -> list:
    for _ in range(50):
        if rollout.batch_ready:
            return rollout.take_batch()
        rollout.step()
    raise AssertionError("the batch never filled")


def left_out(batch: list) -> set[int]:
    numbers = {trajectory.episode for trajectory in batch}
    assert len(numbers) == len(batch) >= 4
    return set(range(max(numbers))) - numbers


def test_an_environment_that_raises_costs_its_episode_alone(make_rollout):
    def fault(env: FaultyEnv) -> None:
        if in_episode(1, env) and env.steps == 2:
            raise RuntimeError("the door is stuck.\nand more")

    rollout, warnings = make_rollout(faulty(fault))
    before, failed = FaultyEnv.made, rollout.slots[1].game.env.unwrapped
    batch = fill(rollout)
    assert left_out(batch) == {1}
    assert (rollout.failures.dropped, rollout.episodes, FaultyEnv.made - before) == (
        1,
        len(batch),
        1,
    )
    assert failed.is_closed
    assert episode_seed(SEED, 1) not in rollout.slots[1].game.env.unwrapped.seeds, (
        "it was made anew"
    )
    assert warnings == [
        "An episode was dropped. Environment 2, episode 1, step 2: LlamaFaulty-v0 failed on the fallback action: "
        f"RuntimeError: the door is stuck ({__file__}, line {line_of(fault, 'raise')})."
    ]


def test_an_environment_that_cannot_be_made_anew_is_tried_again(make_rollout, monkeypatch):
    def fault(env: FaultyEnv) -> None:
        if in_episode(0, env):
            raise ValueError("once")

    rollout, warnings = make_rollout(faulty(fault))
    make, tries = rollout._make_env, []

    def made():
        tries.append(1)
        if len(tries) == 1:
            raise EnvError("The environment cannot be made: no port is free.")
        return make()

    for slot in rollout.slots:
        monkeypatch.setattr(slot.game, "_make_env", made)
    assert left_out(fill(rollout)) == {0, 2}
    assert (rollout.failures.dropped, len(tries), len(warnings)) == (2, 2, 2)
    assert "no port is free" in warnings[1]


def test_an_agent_that_cannot_format_an_observation_is_named_with_its_line(make_rollout):
    class Forgetful(CountAgent):
        def format_observation(self, observation: int) -> str:
            if observation == 1 and not self.failed:
                self.failed = True
                return json.loads("{")  # its innermost line is of Python's own library
            return super().format_observation(observation)

    agent = Forgetful()
    agent.failed = False
    rollout, warnings = make_rollout(agent)
    assert left_out(fill(rollout)) == {0}
    (warning,) = warnings
    assert "episode 0, step 1: Forgetful.format_observation failed: JSONDecodeError" in warning
    assert f"({__file__}, line {line_of(Forgetful.format_observation, 'json')})" in warning


def test_an_action_outside_its_space_is_named_and_one_inside_is_not_blamed(make_rollout):
    class Wrong(CountAgent):
        def extract_action(self, response: str) -> int:
            return 5

    rollout, warnings = make_rollout(Wrong(), max_failures=9)
    rollout.step()
    assert "LlamaCount-v0 was not stepped on action 5, which is not in Discrete(2)." in warnings[0]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -1e16, 1e200, None, "much"])
def test_an_episode_with_a_reward_that_is_no_finite_number_is_left_out(make_rollout, reward):
    def fault(env: FaultyEnv):
        return (
            (reward if reward is not None else object())
            if in_episode(1, env) and env.steps == 1
            else None
        )

    rollout, warnings = make_rollout(faulty(fault))
    batch = fill(rollout)
    assert left_out(batch) == {1}
    assert {trajectory.episode_return for trajectory in batch} == {1.0}
    assert "Environment 2, episode 1, step 1: " in warnings[0]
    assert "a finite number" in warnings[0]


@pytest.mark.parametrize("limit", [1, 3])
def test_as_many_failures_in_a_row_as_are_allowed_end_the_run(make_rollout, limit):
    def fault(env: FaultyEnv) -> None:
        raise KeyError("map")

    rollout, _ = make_rollout(faulty(fault), max_failures=limit)
    with pytest.raises(
        EnvError,
        match=rf"^{limit} episodes in a row failed.*KeyError: 'map' \(.*--resume it, or begin again\.$",
    ):
        fill(rollout)
    assert rollout.failures.dropped == limit
