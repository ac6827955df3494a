"""A state of an environment in the words of its agent: the observation, with the environment's `info`.

Each method of an agent gets the observation and, if its signature takes them, the info and the environment.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from llamagym_tui.errors import RAISED, EnvError
from llamagym_tui.game.actions import plain_action
from llamagym_tui.game.agent_base import AgentBase

Info = Mapping[str, Any]
"""The environment's `info`, next to an observation."""
NO_INFO: Info = MappingProxyType({})
MOST_DESCRIBED = 200
"""Most characters of an agent's words for a return or a turn."""
MOST_STEPS = 1_000_000
"""Most environment steps that one action can count as."""


class Observed(NamedTuple):
    """A state in the agent's words."""

    text: str
    """The user message."""
    actions: tuple[str, ...] | None
    """Names of the actions that are admissible now, each once. None: all actions."""


def observed(agent: AgentBase, observation: Any, info: Info) -> Observed:
    """A state in the agent's words. Raises TypeError if the agent returns something that is no text."""
    text = observation_text(agent, observation, info)
    return Observed(text, admissible_actions(agent, observation, info))


def observation_text(agent: AgentBase, observation: Any, info: Info, wording: int = 0) -> str:
    """The user message for a state in a wording, 0 for `format_observation`.

    Raises:
        TypeError: the agent returns no text.
    """
    text = called(wording_of(agent, wording), observation, {"info": info})
    if not isinstance(text, str):
        raise TypeError(
            f"{type(agent).__name__}.{wording_name(wording)} returned {type(text).__name__}, which is no text"
        )
    return text if text.isascii() else _without_surrogates(text)


def wording_of(agent: AgentBase, wording: int) -> Callable[..., str]:
    """The function that words observations, 0 for `format_observation`."""
    return (agent.format_observation, *agent.wordings)[wording]


def wording_name(wording: int) -> str:
    """The place of that function in the agent's class."""
    return f"wordings[{wording - 1}]" if wording else "format_observation"


def _without_surrogates(text: str) -> str:
    """The text with a question mark for each lone surrogate, which UTF-8 cannot hold."""
    return text.encode(errors="replace").decode()


def described_turn(agent: AgentBase, observation: Any, action: Any, reward: float) -> str:
    """A turn in the agent's words, on one line; empty if it has none, or its code fails."""
    try:
        words = " ".join(agent.describe_turn(observation, action, reward).split())
    except RAISED:  # a user's own code
        return ""
    return _without_surrogates(words[:MOST_DESCRIBED])


def admissible_actions(agent: AgentBase, observation: Any, info: Info) -> tuple[str, ...] | None:
    """Names of the actions that are admissible now, each once; None: all actions.

    Raises:
        TypeError: the agent returns something else than names.
        EnvError: the environment's ``action_mask`` cannot be read, or forbids every action.
    """
    names = None
    if names_by_turn(agent):
        names = called(agent.actions, observation, {"info": info})
    if names is None:
        mask = info.get("action_mask") if isinstance(info, Mapping) else None
        return None if mask is None else unmasked(agent, mask)
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError("actions has to return names, each a text")
    each_once = tuple(dict.fromkeys(names))
    return each_once or None


def unmasked(agent: AgentBase, mask: Any) -> tuple[str, ...] | None:
    """The names of an agent's actions that an ``action_mask`` leaves; None: all of them.

    A mask has a number for each action, which is a combination of decisions where there are several. For several
    decisions it may also be a tuple with an array for each, as Gymnasium's MultiDiscrete takes it, or these arrays end
    to end, as MaskablePPO does.

    Raises:
        EnvError: the mask has another form, may be read in two ways, or forbids every action.
    """
    import numpy as np

    names = agent.action_names
    if not names:  # the agent's own code knows its actions
        return None
    where = f"The action_mask of {agent.env_id or 'the environment'}"
    values = mask.tolist() if hasattr(mask, "tolist") else mask
    rows = []
    if isinstance(values, list | tuple):
        rows = [np.ravel(part).tolist() for part in values]
    numbers = list(itertools.chain.from_iterable(rows))
    if not numbers or any(number not in (0, 1) for number in numbers):
        raise EnvError(f"{where} has to be an array, or a tuple of arrays, of 0 and 1.")
    is_flat = all(len(row) == 1 for row in rows)
    is_tuple = isinstance(mask, tuple) and not is_flat
    sizes = list(agent.decision_sizes)
    if not sizes:
        sizes = [len(row) for row in rows] if is_tuple else [len(names)]
    if is_flat and len(numbers) == sum(sizes):
        each = iter(numbers)
        rows = [list(itertools.islice(each, size)) for size in sizes]
    count = math.prod(sizes)
    has_decisions = len(sizes) > 1 and [len(row) for row in rows] == sizes
    has_actions = len(numbers) == count and not is_tuple
    if has_decisions == has_actions:
        hint = f" of {sizes}: give a tuple with an array for each decision" * (len(sizes) > 1)
        raise EnvError(f"{where} has {len(numbers)} numbers for {count} actions{hint}.")
    allowed = numbers
    if has_decisions:  # the last decision counts fastest
        allowed = [all(values) for values in itertools.product(*rows)]
    # Where there are fewer names than actions, they are those of the first ones.
    left = tuple(name for name, is_allowed in zip(names, allowed, strict=False) if is_allowed)
    if not left:
        raise EnvError(f"{where} forbids each of the {len(names)} actions.")
    return left if len(left) < len(names) else None


def names_by_turn(agent: AgentBase | type[AgentBase]) -> bool:
    """True if an agent names the admissible actions of each turn."""
    agent_class = agent if isinstance(agent, type) else type(agent)
    # In an older agent file `actions` may be a value of its own, and no method.
    return callable(agent_class.actions) and agent_class.actions is not AgentBase.actions


def action_named(agent: AgentBase, name: str) -> Any:
    """The action that has a name: its index, or the name itself if the agent does not list it."""
    return agent.action_names.index(name) if name in agent.action_names else name


def reply_of(agent: AgentBase, name: str) -> str:
    """The reply that names an action."""
    return agent.format_action(action_named(agent, name))


def expert_action(agent: AgentBase, observation: Any, info: Info, env: Any) -> Any:
    """The action of the agent's expert; None if it has none. `env` is None if no environment is in that state."""
    return plain_action(called(agent.expert, observation, {"info": info, "env": env}))


def is_refused(info: Info) -> bool:
    """True if the environment refused the action before this info."""
    return isinstance(info, Mapping) and bool(info.get("invalid_action", False))


def is_opponents(info: Info) -> bool:
    """True if the other player of a game for two is to move and is not part of the environment."""
    return isinstance(info, Mapping) and bool(info.get("opponent_moves", False))


def action_steps(info: Info) -> int:
    """Environment steps of the action before this info: 1 unless ``action_steps`` says more.

    Raises:
        TypeError, ValueError: what the info says is no number.
    """
    steps = info.get("action_steps", 1) if isinstance(info, Mapping) else 1
    return int(min(max(steps, 1), MOST_STEPS))


def called(method: Callable[..., Any], observation: Any, offered: Mapping[str, Any]) -> Any:
    """The result of an agent's method for an observation; it also gets the `offered` values that it takes."""
    function = method
    before_offered = 1
    if hasattr(method, "__func__"):  # a bound method, whose first parameter is `self`
        function = method.__func__
        before_offered = 2
    names = _taken(function, before_offered, tuple(offered))
    return method(observation, *[offered[name] for name in names])


@cache
def _taken(function: Callable[..., Any], first: int, offered: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the offered values that a function takes in its parameters from the index `first` on.

    A parameter takes the value of its own name. One that has another name and no default takes the value that is
    offered at its place.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())[first:]
    except (TypeError, ValueError):  # a built-in without a signature
        return ()
    taken: list[str] = []
    for name_at_its_place, parameter in zip(offered, parameters, strict=False):
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            break
        if parameter.name in offered:
            taken.append(parameter.name)
        elif parameter.default is parameter.empty:
            taken.append(name_at_its_place)
        else:
            break
    return tuple(taken)
