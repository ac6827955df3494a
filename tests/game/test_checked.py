"""What crosses from an environment: refused if it is not Gymnasium's, and copied, so that it stays as it was."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from llamagym_tui.errors import EnvError
from llamagym_tui.game.environment import agent_env
from tests.toy_env import CountAgent, made_by


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
    with made_by(lambda env_id, kwargs: Given(reset, step, **more)):
        return agent_env(CountAgent())


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


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ((1, 0.0, True, {}), r"and returned \(1, 0.0, True, {}\) \(tuple\)\.$"),
        ((1, 0.0, True, False, None), "step has to return observation, reward"),
        ((1, float("nan"), True, False, {}), r"a finite number, and is nan \(float\)"),
        ((1, 0.0, "no", False, {}), r"have to be true or false, and one is 'no' \(str\)"),
    ],
)  # fmt: skip
def test_a_step_that_returns_other_than_five_values_is_named(step: Any, words: str) -> None:
    with pytest.raises(EnvError, match=f"^LlamaCount-v0: .*{words}"):
        made(step=step).step(0)


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
