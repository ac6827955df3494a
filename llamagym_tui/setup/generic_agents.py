"""Completes a generic agent with what its environment tells: names of actions and numbers, and ranges.

What Gymnasium only says in its documentation is in `known_environments.json`; an agent's own names come first.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

from llamagym_tui.agents.generic import GenericAgent
from llamagym_tui.errors import RAISED, EnvError, UsageError, described
from llamagym_tui.game.environment import (
    MOST_COMBINATIONS,
    Env,
    decisions,
    few_actions,
    wrapped_env,
)
from llamagym_tui.game.observations import Range, ranges_of
from llamagym_tui.user_files import file_content

MAX_OBSERVATION_NUMBERS = 512
"""Most numbers of an observation that fit into a text; an image has thousands."""
KNOWN = msgspec.json.decode(
    file_content(Path(__file__).with_name("known_environments.json")),
    type=dict[str, dict[str, tuple[str, ...]]],
)
"""Gymnasium's documentation of its environments, by their names without a version."""


def completed(
    base: type[GenericAgent], ranges: Sequence[Range] | None = None
) -> type[GenericAgent]:
    """A subclass that knows the spaces of its environment.

    Args:
        ranges: ranges of the numbers of Boxes, found now if None.
    """
    try:
        env = wrapped_env(base())
    except EnvError as error:
        raise UsageError(str(error)) from error
    try:
        given: dict[str, Any] = {
            "title": base.env_id,
            "observation_space": env.observation_space,
        }
        if env.spec is not None and str(env.spec.entry_point).startswith("gymnasium.envs."):
            given |= KNOWN.get(env.spec.name, {})
        given |= _actions(base, env, given.pop("action_names", ()))
        count = _count(env.observation_space)
        if count > MAX_OBSERVATION_NUMBERS:
            raise UsageError(
                f"{base.env_id} shows {count:,} numbers at a time, too many for a text; "
                "write an agent file that puts what matters into words (path.py:Class)."
            )
        own_classes = base.__mro__[: base.__mro__.index(GenericAgent)]
        sets_history = any("history" in vars(each) for each in own_classes)
        if isinstance(env.observation_space, Box | Discrete) and not sets_history:
            given["history"] = 0  # such an environment mostly shows its whole state
        if not base.observation_ranges:
            try:
                given["observation_ranges"] = ranges_of(env, ranges or ())
            except RAISED as error:  # an environment's reset may raise anything
                raise UsageError(f"{base.env_id} failed to reset: {described(error)}.") from error
    finally:
        env.close()
    own = {name: value for name, value in given.items() if not getattr(base, name)}
    return type(base.__name__, (base,), {"__module__": base.__module__, **own})


def _actions(base: type[GenericAgent], env: Env, known: tuple[str, ...]) -> dict[str, Any]:
    """Names of the actions: those known if there is one for each action, else their numbers.

    If actions are texts, it says so instead.
    """
    space = env.action_space
    if isinstance(space, Text):
        return {"text_space": space, "fallback_action": space.character_list[0] * space.min_length}
    actions = few_actions(space)
    if actions is None:
        few = "[env.action_space.low, env.action_space.high]"
        count = "2"
        if not isinstance(space, Box):
            few = "ACTIONS"
            count = "len(ACTIONS)"
        raise UsageError(
            f"{base.env_id} takes actions from {space}, and a reply names one of at most {MOST_COMBINATIONS}; "
            "choose some by two lines in a class of your own file, which inherits from "
            "llamagym_tui.agents.generic.GenericAgent: "
            f"`def wrap_env(self, env):` and `return gymnasium.wrappers.TransformAction(env, {few}.__getitem__, "
            f"gymnasium.spaces.Discrete({count}))`."
        )
    names = base.action_names or known
    if not names and not isinstance(actions, range):
        values = decisions(space) or []
        # A number alone would be taken for the index of an action.
        kind = "action " if len(values) == 1 else ""
        of_each = [[f"{kind}{value}" for value in each] for each in values]
        names = tuple("+".join(parts) for parts in itertools.product(*of_each))
    if len(names) != len(actions):
        names = tuple(f"action {action}" for action in actions)
    return {"action_names": names}


def _count(space: Any) -> int:
    """The count of numbers in an observation of a space; a text counts as one."""
    if isinstance(space, Dict):
        return sum(_count(part) for part in space.spaces.values())
    if isinstance(space, Tuple):
        return sum(_count(part) for part in space.spaces)
    return math.prod(getattr(space, "shape", None) or ())
