"""Agents of classes that TRL's trainers take as `environment_factory`: methods are tools, and a call is an action.

As there, a call is JSON, a reply without one ends the episode, and what a tool raises is told to the model.
"""

import inspect
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import gymnasium

from llamagym_tui.errors import RAISED, described
from llamagym_tui.game.actions import answer
from llamagym_tui.game.agent_base import AgentBase

DONE = "done"
"""The action of a reply without a call."""


class ToolEpisode(gymnasium.Env[str, str]):
    """Episodes of an instance; its `get_reward`, or its attribute `reward`, pays at the end."""

    action_space = observation_space = gymnasium.spaces.Text(10_000)

    def __init__(
        self, factory: type, tools: Mapping[str, Any], max_steps: int = 50, **columns: Any
    ) -> None:
        """Episodes of an instance of `factory`, whose `reset` gets `columns`, as those of a dataset."""
        self.max_steps = max_steps
        self._made = factory()
        self._tools = tools
        self._columns = columns

    def reset(self, **_: Any) -> Any:
        self._calls = 0
        return str(self._made.reset(**self._columns) or ""), {}

    def step(self, action: str) -> Any:
        made = self._made
        self._calls += 1
        told = ""
        if action != DONE:
            try:
                call = json.loads(action)
                told = str(self._tools[call["name"]](made, **call["arguments"]))
            except RAISED as error:
                told = str({"error": described(error)})
        is_cut = self._calls == self.max_steps
        reward = 0.0
        if action == DONE or is_cut:
            reward = made.get_reward() if hasattr(made, "get_reward") else made.reward
        return told, reward, action == DONE, is_cut, {}


class ToolAgent(AgentBase):
    fallback_action = DONE
    tools: ClassVar[Mapping[str, Any]]
    """Methods by their names."""

    def get_system_prompt(self) -> str:
        call = '{"name": "NAME", "arguments": {"ARGUMENT": "VALUE"}}'
        parts = [f"Call a tool: reply with {call}. A reply without a call ends the episode."]
        for name, tool in self.tools.items():
            parts.append(f"{name}{inspect.signature(tool)}\n{inspect.getdoc(tool)}")
        return "\n\n".join(parts)

    def format_observation(self, observation: str) -> str:
        return observation

    def format_action(self, action: str) -> str:
        return action

    def extract_action(self, response: str) -> str:
        call = re.search(r"\{.*\}", answer(response), re.DOTALL)
        return call[0] if call else DONE


def tool_agent(factory: type) -> type[AgentBase]:
    """The agent of a class; calls have keys if all arguments of its tools are `Literal`."""
    methods = inspect.getmembers(factory, inspect.isfunction)
    hidden = ("reset", "get_reward")
    tools = {name: tool for name, tool in methods if name not in hidden and name[0] != "_"}
    env_id = f"tools/{factory.__name__}-v0"
    gymnasium.registry.pop(env_id, None)
    gymnasium.register(env_id, partial(ToolEpisode, factory, tools))
    own: dict[str, Any] = {"env_id": env_id, "tools": tools}
    calls = [list(_calls(name, tool)) for name, tool in tools.items()]
    if all(calls):
        listed = [*itertools.chain(*calls), DONE]
        own["actions"] = lambda agent, observation: listed
        own["run_settings"] = {"generation.policy": "score", "generation.normalization": "token"}
    return type(factory.__name__, (ToolAgent,), own)


def _calls(name: str, tool: Any) -> Iterator[str]:
    """All calls of a tool; none if some argument is no `Literal`."""
    kinds = get_type_hints(tool)
    kinds.pop("return", None)
    values = (get_args(kind) if get_origin(kind) is Literal else () for kind in kinds.values())
    for chosen in itertools.product(*values):
        yield json.dumps({"name": name, "arguments": dict(zip(kinds, chosen, strict=True))})
