"""Action masks in each form that environments write, for each space of actions; what cannot be read is refused."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from llamagym_tui.errors import EnvError
from llamagym_tui.game.environment import agent_env
from llamagym_tui.game.observed import admissible_actions
from tests.toy_env import CountAgent, made_by


class Space(gymnasium.Env[Any, Any]):
    def __init__(self, space: Any) -> None:
        self.action_space = space


def agent_of(names: str, space: Any) -> CountAgent:
    """An agent that has played in an action space; None: in none yet."""
    agent = type("Masked", (CountAgent,), {"action_names": tuple(names), "counts_actions": True})()
    if space is not None:
        with made_by(lambda env_id, kwargs: Space(space)):
            agent_env(agent)
    return agent


def left(names: str, space: Any, mask: Any) -> str | None:
    found = admissible_actions(agent_of(names, space), 0, {"action_mask": mask})
    return None if found is None else "".join(found)


FIRST, LAST = np.array([1, 0], np.int8), np.array([0, 0, 1], np.int8)
TWO_BY_THREE = spaces.MultiDiscrete([2, 3])


@pytest.mark.parametrize(
    "mask",
    [
        (FIRST, LAST),
        [[1, 0], [0, 0, 1]],
        np.concatenate([FIRST, LAST]),
        torch.tensor([1, 0, 0, 0, 1]),
        np.outer(FIRST, LAST),
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    ],
)
def test_masks_of_several_decisions_leave_the_same_combination(mask: Any) -> None:
    assert left("abcdef", TWO_BY_THREE, mask) == "c"


@pytest.mark.parametrize(
    ("names", "space", "mask", "expected"),
    [
        ("abcd", spaces.MultiDiscrete([2, 2]), (FIRST, np.array([0, 1])), "b"),
        ("abcdefghi", spaces.MultiDiscrete([3, 3]), np.array([[1, 0, 0], [1, 1, 0]]), "ab"),
        ("abc", spaces.MultiDiscrete([3], start=[4]), [0, 1, 1], "bc"),
        ("abc", spaces.Discrete(3, start=5), torch.tensor([True, False, True]), "ac"),
        ("abc", spaces.Discrete(3), [1, 1, 1], None),
        ("ab", spaces.Discrete(4), [0, 1, 1, 1], "b"),
        ("abcd", None, (FIRST, FIRST), "a"),
        ("", spaces.Discrete(3), [0, 0, 0], None),
    ],
)
def test_a_mask_leaves_what_its_space_says(
    names: str, space: Any, mask: Any, expected: Any
) -> None:
    assert left(names, space, mask) == expected


@pytest.mark.parametrize(
    ("space", "mask", "words"),
    [
        (TWO_BY_THREE, [1, 0, 1, 1], "has 4 numbers for 6 actions of .2, 3.: give a tuple with an array"),
        (TWO_BY_THREE, (LAST, FIRST), "has 5 numbers for 6 actions"),
        (TWO_BY_THREE, (FIRST, np.zeros(3)), "forbids each of the 6 actions"),
        (spaces.MultiDiscrete([2, 2]), [1, 0, 0, 1], "has 4 numbers for 4 actions of .2, 2.: give a tuple"),
        (spaces.MultiDiscrete([1, 2, 3]), np.ones(6), "has 6 numbers for 6 actions of .1, 2, 3.: give a tuple"),
        (spaces.Discrete(6), [1, 0, 1], "has 3 numbers for 6 actions.$"),
        (spaces.Discrete(6), [0, 0, float("-inf"), 0, 0, 0], "has to be an array"),
        (spaces.Discrete(6), {0: 1}, "has to be an array"),
    ],
)  # fmt: skip
def test_a_mask_that_cannot_be_obeyed_is_refused(space: Any, mask: Any, words: str) -> None:
    names = "abcdef"[: 4 if getattr(space, "shape", ()) == (2,) and space != TWO_BY_THREE else 6]
    with pytest.raises(EnvError, match=rf"^The action_mask of LlamaCount-v0 {words}"):
        left(names, space, mask)


def test_an_agent_that_names_its_own_actions_is_asked_and_the_mask_is_not() -> None:
    agent = agent_of("ab", spaces.Discrete(2))
    own = type("Own", (type(agent),), {"actions": lambda self, observation: ["a"]})()
    assert admissible_actions(own, 0, {"action_mask": "?"}) == ("a",)
