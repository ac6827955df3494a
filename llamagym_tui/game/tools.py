"""An agent's actions as tools: functions without parameters, one an action, and what calls of them say.

Names of functions have letters, digits and underscores, as every family of models takes them. How a model is told of
them, and how it writes a call, is its chat template's or its server's.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from llamagym_tui.errors import ConfigError
from llamagym_tui.game.agent_base import AgentBase

_JSON = json.JSONDecoder(strict=False)
ARGUMENTS = ("arguments", "parameters")
"""Where a call in JSON has its arguments."""
_BEGIN = re.compile(r"[\[{]")
_NAMED = re.compile(r"\[TOOL_CALLS\]\s*([\w-]+)(?:\[CALL_ID\][^\[]*)?\[ARGS\]")
"""A call of Mistral's later models, whose name stands before its arguments."""


class Tools:
    def __init__(self, replies: Mapping[str, str]) -> None:
        """`replies`: the plainest reply that names an action, by the action's name."""
        self.functions = {_function(name): reply for name, reply in replies.items()}
        """That reply by the name of the function."""
        self.schemas: list[dict[str, Any]] = [
            {
                "type": "function",
                "function": {
                    "name": _function(name),
                    "description": f"Take the action {name}.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
            for name in replies
        ]
        """The functions as chat templates and servers take them."""
        self.calls = {reply: _call(function) for function, reply in self.functions.items()}
        """By such a reply, the message that calls its function."""

    def meant(self, called: Sequence[str]) -> str:
        """The plainest reply for calls of one function; empty: they are of several, or of another one."""
        name, *others = set(called)
        return "" if others else self.functions.get(name, "")


def tools_of(agent: AgentBase) -> Tools | None:
    """The tools of an agent; None: it offers none.

    Raises:
        ConfigError: it names no actions, or two of them would be the same function.
    """
    if not agent.actions_as_tools:
        return None
    names = agent.action_names
    functions = set(map(_function, names))
    if not names or "" in functions or len(functions) < len(names):
        raise ConfigError(
            f"{type(agent).__name__} offers its actions as tools, for which each needs a name of its own, of letters "
            "and digits, in action_names: name them, or leave actions_as_tools out."
        )
    return Tools({name: agent.format_action(index) for index, name in enumerate(names)})


def functions_called(text: str) -> list[str]:
    """Names of the functions that a text calls, as Qwen, Hermes, Llama and Mistral write calls: JSON with a name and
    arguments, alone, in tags or in a list, or a name between Mistral's marks."""
    found = _NAMED.findall(text)
    end = 0
    while begin := _BEGIN.search(text, end):
        try:
            value, end = _JSON.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            end = begin.start() + 1
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict) and not each.keys().isdisjoint(ARGUMENTS):
                found += [name for name in [each.get("name")] if isinstance(name, str)]
    return found


def _function(name: str) -> str:
    return re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")


def _call(function: str) -> dict[str, Any]:
    made = {"name": function, "arguments": {}}
    # Mistral's templates want an identifier of nine signs.
    calls = [{"id": "call00000", "type": "function", "function": made}]
    return {"role": "assistant", "content": "", "tool_calls": calls}
