"""A state of an environment as its agent puts it: the observation, with the environment's `info`, in words.

The one place that calls an agent's methods on a state. Each gets as much of observation, info and environment as its
signature takes, so that agents written for the observation alone run unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from llamagym_tui.game.agent_base import AgentBase

Info = Mapping[str, Any]
"""What an environment adds to an observation."""
NO_INFO: Info = MappingProxyType({})


def observation_text(agent: AgentBase, observation: Any, info: Info) -> str:
    """The user message of a state."""
    return _called(agent.format_observation, observation, info=info)


def expert_action(agent: AgentBase, observation: Any, info: Info, env: Any) -> Any:
    """The action of the agent's expert; None if it has none. `env` is None where no environment is in that state."""
    return _called(agent.expert, observation, info=info, env=env)


def drawn_by(agent: AgentBase, observation: Any, info: Info) -> str:
    """The agent's drawing of a state."""
    return str(_called(agent.draw, observation, info=info))


def is_refused(info: Info) -> bool:
    """Whether the environment refused the action that led to this info: such a reply counts as naming none."""
    return isinstance(info, Mapping) and bool(info.get("invalid_action", False))


def _called(method: Callable[..., Any], observation: Any, **offered: Any) -> Any:
    own = getattr(method, "__func__", None)
    names = _taken(own or method, 1 if own is None else 2, tuple(offered))
    return method(observation, *[offered[name] for name in names])


@cache
def _taken(function: Callable[..., Any], first: int, offered: tuple[str, ...]) -> tuple[str, ...]:
    """Which of what is offered a function takes from its parameter `first` on: by their names or, where they have
    others and no default, by their places."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[first:]
    except (TypeError, ValueError):  # a built-in without a signature
        return ()
    taken: list[str] = []
    for name, parameter in zip(offered, parameters, strict=False):
        is_named = parameter.name in offered
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) or not (
            is_named or parameter.default is parameter.empty
        ):
            break
        taken.append(parameter.name if is_named else name)
    return tuple(taken)
