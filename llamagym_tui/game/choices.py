"""The actions that a person can take: each with a key, and in words that the agent can read."""

import string
from collections.abc import Sequence
from typing import Any, NamedTuple

from llamagym_tui.errors import RAISED, ActionParseError, EnvError, described
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import few_actions

SPARE_KEYS = string.digits + string.ascii_lowercase
"""Keys, in order, for the actions to which the agent gives none."""


class OfferedAction(NamedTuple):
    """An action that a person can take."""

    key: str
    """The key that takes it; empty: there are more actions in this turn than keys, and this one can only be clicked."""
    action: int | str
    name: str


def choices(
    agent: AgentBase, space: Any, admissible: Sequence[str] | None = None
) -> tuple[OfferedAction, ...]:
    """The actions that a person can take, each with a key: the agent's own, or a digit or letter that it leaves free.

    Args:
        space: the environment's action space.
        admissible: names of the actions that can be taken now. None: all actions of the space.
    Raises:
        EnvError: the space is not discrete and no action is named, or it has more actions than there are keys.
    """
    from gymnasium.spaces import Discrete

    actions = few_actions(space) if isinstance(space, Discrete) else admissible
    if not actions:
        raise EnvError(
            f"{agent.env_id} takes actions from {space}; only discrete actions can be taken with keys, "
            "so a person cannot play it here."
        )
    keys: dict[int | str, str] = {action: key for key, action in agent.action_keys.items()}
    free = [key for key in SPARE_KEYS if key not in agent.action_keys]
    given = []
    for action in actions:
        own_digit = str(action)
        if action in keys:
            key = keys[action]
        elif free:
            key = own_digit if own_digit in free else free[0]
            free.remove(key)
        elif admissible:
            key = ""
        else:
            raise EnvError(
                f"{agent.env_id} has {len(actions)} actions, more than there are keys for a person."
            )
        given.append(OfferedAction(key, action, agent.action_name(action)))
    return tuple(choice for choice in given if admissible is None or choice.name in admissible)


def worded(agent: AgentBase, action: int | str) -> str:
    """The reply by which the agent would take an action; raises ActionParseError if `format_action` fails."""
    try:
        return agent.format_action(action)
    except RAISED as error:
        raise ActionParseError(f"{described(error)}.") from error
