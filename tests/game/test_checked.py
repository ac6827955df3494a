"""What crosses from an environment: refused if it is not Gymnasium's, and copied, so that it stays as it was."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from llamagym_tui.errors import EnvError
from llamagym_tui.game.environment import agent_env
from tests.toy_env import CountAgent


class Given(gymnasium.Env[Any, Any]):
    """Returns what it is given."""

    action_space = spaces.Discrete(2)

    def __init__(self, reset: Any, step: Any, space: spaces.Space[Any] | None = None) -> None:
        self.observation_space = space or spaces.Box(0, 99, (2,))
        self.reset_value, self.step_value = reset, step
        self.label = "inner"

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.reset_value

    def step(self, action: int) -> Any:
        return self.step_value() if callable(self.step_value) else self.step_value


def made(reset: Any = (0, {}), step: Any = None, **more: Any) -> gymnasium.Env[Any, Any]:
    return agent_env(CountAgent(), lambda env_id, kwargs: Given(reset, step, **more))


@pytest.mark.parametrize(
    "found",
    [np.array([70.0, 0.0]), "ab", {"x": 1, "y": 2}, [0, {}], None, 3, (0, {}, 1), (0, None), (0,)],
)
def test_a_reset_that_returns_no_info_is_named(found: Any) -> None:
    with pytest.raises(
        EnvError,
        match=r"^LlamaCount-v0: reset has to return an observation and an info, and returned .*\.$",
    ):
        made(found).reset(seed=1)


def test_an_observation_of_two_parts_alone_is_no_observation_with_an_info() -> None:
    both = spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.Discrete(3)})])
    with pytest.raises(EnvError, match="reset has to return an info with the observation"):
        made((1, {"x": 2}), space=both).reset()
    assert made(((1, {"x": 2}), {}), space=both).reset() == ((1, {"x": 2}), {})


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ((1, 0.0, True, {}), r"and returned \(1, 0.0, True, {}\) \(tuple of 4 values\)\.$"),
        ((1, 0.0, True, False, None), "step has to return observation, reward"),
        ((1, None, True, False, {}), r"the reward has to be a finite number, and is None \(NoneType\)"),
        ((1, float("nan"), True, False, {}), r"a finite number, and is nan \(float\)"),
        ((1, np.array([1.0, 2.0]), True, False, {}), r"a finite number, and is array\(\[1., 2.\]\)"),
        ((1, "1.0", True, False, {}), r"a finite number, and is '1.0' \(str\)"),
        ((1, 1j, True, False, {}), "a finite number"),
        ((1, 0.0, None, False, {}), r"terminated has to be true or false, and is None"),
        ((1, 0.0, False, {}, {}), r"truncated has to be true or false, and is {} \(dict\)"),
        ((1, 0.0, False, "no", {}), "truncated has to be true or false"),
        ((1, 0.0, 2, False, {}), "terminated has to be true or false"),
    ],
)  # fmt: skip
def test_a_step_that_returns_other_than_five_values_is_named(step: Any, words: str) -> None:
    with pytest.raises(EnvError, match=f"^LlamaCount-v0: .*{words}"):
        made(step=step).step(0)


def test_a_step_of_four_values_is_named_within_a_time_limit_too() -> None:
    def make(env_id: str, kwargs: Any) -> gymnasium.Env[Any, Any]:
        inner = Given((0, {}), (1, 0.0, True, {}))
        return gymnasium.wrappers.TimeLimit(inner, 9)

    env = agent_env(CountAgent(), make)
    env.reset()
    with pytest.raises(EnvError, match=r"step has to return observation, reward.*got 4"):
        env.step(0)


@pytest.mark.parametrize("reward", [2, True, np.float32(2), np.array([2.0]), np.array(2)])
@pytest.mark.parametrize("over", [1, np.bool_(True), np.array([True])])
def test_numbers_and_truths_of_any_kind_are_plain_ones(reward: Any, over: Any) -> None:
    _, earned, terminated, truncated, _ = made(step=(1, reward, over, 0, {})).step(0)
    assert type(earned) is float
    assert earned == float(np.ravel(reward)[0])
    assert (terminated, truncated) == (True, False)
    assert (type(terminated), type(truncated)) == (bool, bool)


def test_what_an_environment_changes_later_stays_as_it_was_returned() -> None:
    state = np.zeros(2)
    mask = np.ones(2)
    seen = {"board": [state], "at": (state, 1)}
    info = {"action_mask": mask, "engine": made, "left": [1, 2]}

    def step() -> Any:
        state[:] = 9
        mask[:] = 0
        info["left"].clear()
        info["new"] = 1
        return seen, 0.0, False, False, info

    env = made((seen, info), step)
    first, first_info = env.reset()
    second, _, _, _, _ = env.step(0)
    env.step(0)
    assert [first["board"][0].tolist(), first["at"][0].tolist()] == [[0, 0], [0, 0]]
    assert second["board"][0].tolist() == [9, 9]
    assert first_info["action_mask"].tolist() == [1, 1]
    assert first_info["left"] == [1, 2]
    assert set(first_info) == {"action_mask", "engine", "left"}
    assert first_info["engine"] is made


def test_an_object_that_is_an_observation_is_copied_and_one_that_cannot_be_is_refused() -> None:
    class Board:
        fields = 0

    board = Board()
    first, _ = made((board, {})).reset()
    board.fields = 3
    assert first.fields == 0
    with pytest.raises(EnvError, match="has to be copied, as the next step may change it"):
        made(((part for part in "ab"), {})).reset()


def test_a_wrapper_of_the_agents_is_checked_and_keeps_its_attributes() -> None:
    class Halves(gymnasium.Wrapper[Any, Any, Any, Any]):
        own = "outer"

        def reset(self, **given: Any) -> Any:
            return self.env.reset(**given)[0]

    agent = type("Wraps", (CountAgent,), {"wrap_env": lambda self, env: Halves(env)})()
    env = agent_env(agent, lambda env_id, kwargs: Given((np.zeros(2), {}), None))
    assert (env.own, env.unwrapped.label) == ("outer", "inner")  # type: ignore[attr-defined]
    with pytest.raises(EnvError, match=r"^LlamaCount-v0 in Wraps\.wrap_env: reset has to return"):
        env.reset()
