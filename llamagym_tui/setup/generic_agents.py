"""Completes a generic agent by its environment: names of actions and numbers, ranges, rows and columns.

What Gymnasium documents stands in `known_environments.json`; an agent's own names come first.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

from llamagym_tui.agents.generic import GenericAgent
from llamagym_tui.errors import EnvError, UsageError, described
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
"""Numbers in an observation that still fit into a text; an image has thousands."""
KNOWN = msgspec.json.decode(
    file_content(Path(__file__).with_name("known_environments.json")),
    type=dict[str, dict[str, tuple[str | int, ...] | dict[str, tuple[str, ...]]]],
)
"""Of Gymnasium's own environments, by their names without a version."""


def completed(
    base: type[GenericAgent], ranges: Sequence[Range] | None = None
) -> type[GenericAgent]:
    """A subclass that knows the spaces of its environment.

    Args:
        ranges: of the numbers of Boxes, as they were found before. None: found now.
    """
    try:
        env = wrapped_env(base())
    except EnvError as error:
        raise UsageError(str(error)) from error
    try:
        given = {
            "title": base.env_id,
            "observation_space": env.observation_space,
            **_known(env),
            **_grid(env),
        }
        given |= _actions(base, env, given.pop("action_names", ()))
        _require_text(base.env_id, env)
        names_history = any(
            "history" in vars(each) for each in base.__mro__[: base.__mro__.index(GenericAgent)]
        )
        if isinstance(env.observation_space, Box | Discrete) and not names_history:
            given["history"] = (
                0  # what such an environment shows is mostly all that there is to see
            )
        if not base.observation_ranges:
            try:
                given["observation_ranges"] = ranges_of(env, ranges or ())
            except (Exception, SystemExit) as error:  # an environment's reset may raise anything
                raise UsageError(f"{base.env_id} failed to reset: {described(error)}.") from error
    finally:
        env.close()
    own = {name: value for name, value in given.items() if not getattr(base, name)}
    return type(base.__name__, (base,), {"__module__": base.__module__, **own})


def _known(env: Env) -> dict[str, Any]:
    """What is documented of the environment, if it is one of Gymnasium's own."""
    is_own = env.spec is not None and str(env.spec.entry_point).startswith("gymnasium.envs.")
    return KNOWN.get(env.spec.name, {}) if is_own and env.spec else {}


def _grid(env: Env) -> dict[str, Any]:
    """Row and column, where a Discrete observation counts the fields of the map that the environment has."""
    shown, inner = env.observation_space, env.unwrapped
    shape: Any
    for shape in (
        getattr(inner, "shape", None),
        getattr(getattr(inner, "desc", None), "shape", None),
    ):
        is_map = isinstance(shape, tuple) and len(shape) == 2
        if (
            is_map
            and isinstance(shown, Discrete)
            and shown.start == 0
            and math.prod(shape) == shown.n
        ):
            return {"observation_sizes": shape, "observation_names": ("row", "column")}
    return {}


def _actions(base: type[GenericAgent], env: Env, known: tuple[str, ...]) -> dict[str, Any]:
    """Names of the actions: those known, if they are as many, else numbers; or that actions are texts."""
    space = env.action_space
    if isinstance(space, Text):
        return {"text_space": space, "fallback_action": space.character_list[0] * space.min_length}
    actions = few_actions(space)
    if actions is None:
        raise UsageError(_refusal(base.env_id, space))
    names = base.action_names or known
    if not isinstance(actions, range):
        parts = base.decision_names or [
            [str(value) for value in values] for values in decisions(space) or ()
        ]
        names = names or tuple("+".join(part) for part in itertools.product(*parts))
    return {
        "action_names": names
        if len(names) == len(actions)
        else tuple(f"action {each}" for each in actions)
    }


def _refusal(env_id: str, space: Any) -> str:
    few = "[env.action_space.low, env.action_space.high]" if isinstance(space, Box) else "ACTIONS"
    count = "2" if isinstance(space, Box) else "len(ACTIONS)"
    return (
        f"{env_id} takes actions from {space}, and a reply names one of at most {MOST_COMBINATIONS}; choose some by "
        "two lines in a class of your own file that inherits from llamagym_tui.agents.generic.GenericAgent: "
        f"`def wrap_env(self, env):` and `return gymnasium.wrappers.TransformAction(env, {few}.__getitem__, "
        f"gymnasium.spaces.Discrete({count}))`."
    )


def _require_text(env_id: str, env: Env) -> None:
    if (count := _count(env.observation_space)) > MAX_OBSERVATION_NUMBERS:
        raise UsageError(
            f"{env_id} shows {count:,} numbers at a time, too many for a text; "
            "write an agent file that puts what matters into words (path.py:Class)."
        )


def _count(space: Any) -> int:
    """How many numbers an observation of a space has; a text counts as one."""
    if isinstance(space, Dict | Tuple):
        parts = space.spaces.values() if isinstance(space, Dict) else space.spaces
        return sum(_count(part) for part in parts)
    return math.prod(getattr(space, "shape", None) or ())
