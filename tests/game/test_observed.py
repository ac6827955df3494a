"""What an environment adds to an observation reaches the agents that take it, and nothing else of theirs changes."""

from __future__ import annotations

from typing import Any

import pytest

from llamagym_tui.game.observed import (
    called,
    expert_action,
    observation_text,
)
from tests.text_env import ChestAgent, ChestEnv
from tests.toy_env import CountAgent

INFO = {"hint": "go"}


@pytest.mark.parametrize(
    ("method", "seen"),
    [
        (lambda self, observation: (), ()),
        (lambda self, observation, info: (info,), (INFO,)),
        (lambda self, observation, more: (more,), (INFO,)),
        (lambda self, observation, info, env: (info, env), (INFO, "env")),
        (lambda self, observation, env: (env,), ("env",)),
        (lambda self, observation, env=None, info=None: (env, info), ("env", INFO)),
        (lambda self, observation, depth=3: (depth,), (3,)),
        (lambda self, observation, *rest, **named: (rest, named), ((), {})),
        (staticmethod(lambda observation, info: (info,)), (INFO,)),
    ],
)
def test_an_expert_gets_as_much_of_a_state_as_its_signature_takes(method: Any, seen: Any) -> None:
    agent = type("Given", (CountAgent,), {"expert": method})()
    assert expert_action(agent, 0, INFO, "env") == seen


def test_an_agent_that_takes_info_words_and_draws_with_it() -> None:
    agent = type("New", (ChestAgent,), {"draw": lambda self, observation, info: str(len(info))})()
    seen = ChestEnv().reset()
    assert observation_text(agent, *seen) == "You are in a hall. You can: take key, go north."
    assert called(agent.draw, seen[0], {"info": seen[1]}) == "1"
