"""A state of an environment as its agent puts it: the observation, with the environment's `info`, in words.

Each of an agent's methods gets as much of observation, info and environment as its signature takes.
"""

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from llamagym_tui.game.agent_base import AgentBase

Info = Mapping[str, Any]
"""What an environment adds to an observation."""
NO_INFO: Info = MappingProxyType({})
MOST_DESCRIBED = 200
"""Characters of what an agent calls a return."""
MOST_STEPS = 1_000_000
"""Of the environment that one action is taken to last."""


class Observed(NamedTuple):
    text: str
    """The user message."""
    actions: tuple[str, ...] | None
    """Names of the actions that are admissible now, each once. None: those of every turn."""


def observed(agent: AgentBase, observation: Any, info: Info) -> Observed:
    """A state in the agent's words. Raises TypeError: its text, or the name of an action, is no text."""
    return Observed(
        observation_text(agent, observation, info), admissible_actions(agent, observation, info)
    )


def observation_text(agent: AgentBase, observation: Any, info: Info) -> str:
    """The user message of a state. Raises TypeError: the agent returns no text."""
    text = called(agent.format_observation, observation, info=info)
    if not isinstance(text, str):
        raise TypeError(
            f"{type(agent).__name__}.format_observation returned {type(text).__name__}, which is no text"
        )
    return (
        text if text.isascii() else text.encode(errors="replace").decode()
    )  # lone surrogates are no characters


def described_return(agent: AgentBase, mean: float) -> str:
    """A mean return in the agent's words, on one line; empty where its code fails."""
    try:
        words = " ".join(agent.describe_return(mean).split())
    except Exception:  # a user's own code
        return ""
    return words[:MOST_DESCRIBED].encode(errors="replace").decode()  # as above


def admissible_actions(agent: AgentBase, observation: Any, info: Info) -> tuple[str, ...] | None:
    given = called(agent.actions, observation, info=info) if names_by_turn(agent) else None
    if given is None:
        return _unmasked(agent.action_names, info)
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise TypeError("actions has to return names, each a text")
    return tuple(dict.fromkeys(given)) or None


def _unmasked(names: Sequence[str], info: Info) -> tuple[str, ...] | None:
    mask = info.get("action_mask") if isinstance(info, Mapping) else None
    if mask is None or len(mask) != len(names):
        return None
    left = tuple(name for name, is_admissible in zip(names, mask, strict=True) if is_admissible)
    return left if 0 < len(left) < len(names) else None


def names_by_turn(agent: AgentBase) -> bool:
    """Whether an agent names the actions that are admissible in each turn."""
    own = agent.actions  # of an older file, some value of its own
    return callable(own) and getattr(own, "__func__", None) is not AgentBase.actions


def action_named(agent: AgentBase, name: str) -> Any:
    """The action of a name: its index, or the name itself."""
    return agent.action_names.index(name) if name in agent.action_names else name


def random_action(
    agent: AgentBase, observation: Any, info: Info, env: Any, rng: random.Random
) -> Any:
    """Any of the actions that are admissible now; where none are named, any of the environment's."""
    names = admissible_actions(agent, observation, info)
    return action_named(agent, rng.choice(names)) if names else env.action_space.sample()


def reply_of(agent: AgentBase, name: str) -> str:
    """The canonical reply that names an action."""
    return agent.format_action(action_named(agent, name))


def expert_action(agent: AgentBase, observation: Any, info: Info, env: Any) -> Any:
    """The action of the agent's expert; None if it has none. `env` is None where no environment is in that state."""
    return called(agent.expert, observation, info=info, env=env)


def is_refused(info: Info) -> bool:
    """Whether the environment refused the action that led to this info: such a reply counts as naming none."""
    return isinstance(info, Mapping) and bool(info.get("invalid_action", False))


def action_steps(info: Info) -> int:
    """Environment steps that the action took which led to this info: 1, if ``action_steps`` does not name more.

    Raises:
        TypeError, ValueError: what it names is no number.
    """
    named = info.get("action_steps", 1) if isinstance(info, Mapping) else 1
    return int(min(max(named, 1), MOST_STEPS))


def called(method: Callable[..., Any], observation: Any, **offered: Any) -> Any:
    """What an agent's method returns for a state, given as much of what is `offered` as it takes."""
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
        if parameter.kind not in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        ) or not (is_named or parameter.default is parameter.empty):
            break
        taken.append(parameter.name if is_named else name)
    return tuple(taken)
