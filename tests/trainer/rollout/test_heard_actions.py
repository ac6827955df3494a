"""What the environment gets is what the reply named, in every space of actions, and names and log agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamagym_tui.agent import Agent
from llamagym_tui.agents.generic import GenericAgent
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.errors import EnvError
from llamagym_tui.game.environment import agent_env, few_actions
from llamagym_tui.protocol.events import TurnFinished
from llamagym_tui.setup.generic_agents import completed
from llamagym_tui.trainer.rollout.env_slot import EnvSlot
from llamagym_tui.trainer.rollout.rollout import Rollout


class HeardEnv(gymnasium.Env):
    """Takes any action, and remembers it."""

    heard: ClassVar[list[Any]] = []
    observation_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.heard.append(action)
        return 1, 0.0, False, False, {}


gymnasium.register("LlamaHeard-v0", HeardEnv)

INTEGERS: dict[str, Callable[[int], Any]] = {
    "int": int,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "int64": np.int64,
    "array of no axes": lambda number: np.array(number),
    "tensor of no axes": lambda number: torch.tensor(number),
}
"""What an agent's own code may return for a whole number from 0 to 127."""
KINDS = (np.int8, np.int32, np.int64)
DISCRETE = st.builds(
    spaces.Discrete,
    st.integers(1, 6),
    start=st.integers(-3, 9),
    dtype=st.sampled_from(KINDS),
)
ZERO_BASED = st.builds(spaces.Discrete, st.integers(2, 6))
MULTI_DISCRETE = st.lists(
    st.tuples(st.integers(1, 3), st.integers(-2, 4)), min_size=1, max_size=3
).flatmap(
    lambda each: st.sampled_from(KINDS).map(
        lambda kind: spaces.MultiDiscrete(
            [size for size, _ in each], start=[start for _, start in each], dtype=kind
        )
    )
)
MULTI_BINARY = st.one_of(st.integers(1, 4), st.just([2, 2])).map(spaces.MultiBinary)


class Own(Agent):
    """An agent of somebody's own, whose names have nothing to do with numbers."""

    env_id = "LlamaHeard-v0"

    def get_system_prompt(self) -> str:
        return "Play."

    def format_observation(self, observation: Any) -> str:
        return f"{observation}"


def kind_of_agent(base: type[Agent], space: spaces.Space, **own: Any) -> type[Any]:
    return type("Made", (base,), {"env_id": "LlamaHeard-v0", "env_kwargs": {"space": space}, **own})


def names_of(count: int) -> tuple[str, ...]:
    return tuple(
        f"go {'abcdefghijklmnopqrstuvwxyz'[index % 26] * (1 + index // 26)}"
        for index in range(count)
    )


def played(policy: Policy, agent: Agent, reply: str) -> tuple[Any, TurnFinished]:
    """What the environment heard of a reply, and the turn in the log."""
    emitted: list[Any] = []
    rollout = Rollout(
        agent, policy, n_envs=1, max_turns=9, batch_turns=9, seed=0, emit=emitted.append
    )
    slot: EnvSlot = rollout.slots[0]
    rollout.begin_episodes()
    slot.under_way.observe(*slot.shown)
    HeardEnv.heard.clear()
    move = slot.move(Reply([5], [-0.1], 0.0, True), person=reply)
    slot.play(move)
    slot.finish_turn(move)
    rollout.close()
    (turn,) = [event for event in emitted if isinstance(event, TurnFinished)]
    (heard,) = HeardEnv.heard
    return heard, turn


@pytest.fixture(scope="module")
def policy(tokenizer: Any) -> Policy:
    from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
    from llamagym_tui.settings import GenerationConfig
    from tests.engine.conftest import tiny_llama

    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    return Policy(model, tokenizer, GenerationConfig(max_new_tokens=6))


MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@MANY
@given(space=st.one_of(DISCRETE, MULTI_DISCRETE, MULTI_BINARY), data=st.data())
def test_a_reply_by_number_or_name_reaches_the_environment_as_its_own_action(
    policy: Policy, space: Any, data: st.DataObject
) -> None:
    actions = few_actions(space)
    assert actions is not None
    index = data.draw(st.integers(0, len(actions) - 1), label="index")
    kind = data.draw(st.sampled_from(["generic", "generic with names", "own"]), label="kind")
    if kind == "own":
        agent = kind_of_agent(Own, space, action_names=names_of(len(actions)))()
    elif kind == "generic":
        agent = completed(kind_of_agent(GenericAgent, space))()
    else:
        named = kind_of_agent(GenericAgent, space, action_names=names_of(len(actions)))
        agent = completed(named)()
    by_name = data.draw(st.booleans(), label="by name")
    reply = agent.action_names[index] if by_name else f'{{"action": {index}}}'
    heard, turn = played(policy, agent, f"Action: {reply}" if by_name else reply)
    assert np.array_equal(heard, actions[index])
    assert space.contains(heard)
    assert (turn.action, turn.action_name) == (index, agent.action_names[index])


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Box(-1, 1, (2,)), np.array([0.5, -0.25], dtype=np.float32)),
        (spaces.Text(8), "go on"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3, start=4)]), (1, 6)),
        (spaces.Dict(a=spaces.Discrete(2)), {"a": 1}),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2])),
        (spaces.MultiDiscrete([4]), np.array([3])),
    ],
    ids=str,
)
def test_an_action_that_is_no_number_reaches_the_environment_as_the_agent_returned_it(
    policy: Policy, space: Any, action: Any
) -> None:
    own = {"extract_action": lambda self, response: action, "fallback_action": action}
    heard, turn = played(policy, kind_of_agent(Own, space, **own)(), "whatever")
    assert heard is action
    assert turn.action_name == str(action)


@pytest.mark.parametrize(
    ("space", "own", "said"),
    [
        (spaces.Discrete(2), {"action_names": names_of(3)}, "it has 3 action_names for the 2 acti"),
        (
            spaces.Discrete(3, start=1),
            {"action_names": names_of(3), "extract_action": lambda self, reply: 1},
            "counts its actions from 1, so .* set counts_actions = True",
        ),
        (
            spaces.Discrete(3, start=5),
            {"extract_action": lambda self, reply: 5},
            r"its fallback_action, 0, is not in Discrete\(3, start=5\): set another",
        ),
        (
            spaces.Discrete(3, start=5),
            {"action_names": names_of(3), "fallback_action": 5},
            "its fallback_action, 5, is no index of an action",
        ),
        (spaces.Discrete(2), {"action_names": ("go", "Go")}, "are read as the same one"),
        (
            spaces.MultiBinary(2),
            {"extract_action": lambda self, reply: 1},
            "0, is not in MultiBinary",
        ),
    ],
)
def test_an_agent_whose_actions_are_not_the_environments_is_refused_before_it_plays(
    space: Any, own: dict[str, Any], said: str
) -> None:
    with pytest.raises(EnvError, match=f"Made cannot play LlamaHeard-v0: .*{said}"):
        agent_env(kind_of_agent(Own, space, **own)())
