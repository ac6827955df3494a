"""Observations in words: numbers as 0 to 99 of their ranges, and what a range is."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from llamagym_tui.game.observations import fields, in_words, level, ranges_of

NOWHERE = np.finfo(np.float32).max


class Swing(gymnasium.Env[Any, int]):
    """Shows `space`'s samples, or the numbers 0, 1, 2 … at their steps."""

    def __init__(self, space: spaces.Space[Any], fails_at: int = 10**6) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.steps, self.fails_at = 0, fails_at

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return np.array([self.steps]), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps > self.fails_at:
            raise RuntimeError("worn out")
        return np.array([self.steps]), 0.0, self.steps % 7 == 0, False, {}


def box(low: Any, high: Any, shape: tuple[int, ...] = (1,), dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(low, high, shape, dtype)


def words(space: spaces.Space[Any], observation: Any, names: str = "", ranges: Any = ()) -> str:
    return in_words(space, observation, iter(names.split()), iter(ranges))


INF = float("inf")


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (-1, 0),
        (-2, 0),
        (-0.99, 0),
        (-0.98, 1),
        (0, 50),
        (0.999, 99),
        (1, 99),
        (7, 99),
        (INF, 99),
        (-INF, 0),
    ],
)
def test_a_number_is_shown_as_its_hundredth_of_the_range(number: float, shown: int) -> None:
    assert level(number, -1, 1) == str(shown)
    assert level(float("nan"), -1, 1) == "nan"


def test_bounds_that_are_finite_and_narrow_are_the_range() -> None:
    assert ranges_of(Swing(box(-2.5, 500))) == [(-2.5, 500.0)]


@pytest.mark.parametrize(
    "space", [box(-np.inf, np.inf), box(-NOWHERE, NOWHERE), box(0, np.inf), box(-501, 500)]
)
def test_bounds_that_say_nothing_are_measured_by_a_thousand_random_steps(space: spaces.Box) -> None:
    assert ranges_of(Swing(space)) == [(10.0, 990.0)]  # of 0, 1 … 1,000


def test_dicts_are_shown_by_key_tuples_by_place_and_texts_as_they_are() -> None:
    space = spaces.Dict(
        {
            "hand": spaces.Tuple((spaces.Discrete(9, start=-2), spaces.MultiBinary(2), box(0, 2))),
            "mission": spaces.Text(20),
            "pair": spaces.MultiDiscrete([3, 4]),
        }
    )
    observation = {
        "hand": (-1, np.array([0, 1], np.int8), np.array([1.0])),
        "mission": "go on",
        "pair": np.array([2, 3]),
    }
    assert (
        words(space, observation, "left", [(0, 2)])
        == "hand: left -1, 0, 1, 50; mission: go on; pair: 2, 3"
    )


def test_a_discrete_observation_is_taken_apart_the_last_number_counting_fastest() -> None:
    assert fields(36, (4, 12)) == [3, 0]
    env = gymnasium.make("Taxi-v4").unwrapped
    assert fields(env.encode(2, 4, 3, 1), (5, 5, 5, 4)) == [2, 4, 3, 1]
