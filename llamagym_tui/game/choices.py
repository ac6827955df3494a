"""The actions that a person can take: each on a key, and in words that the agent reads.

Keys are the agent's, then digits and letters that it leaves free.
"""

import string
from collections.abc import Sequence
from typing import Any, NamedTuple

from llamagym_tui.errors import ActionParseError, EnvError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import few_actions

SPARE_KEYS = string.digits + string.ascii_lowercase
"""Keys of actions to which the agent gives none, in order."""


class Choice(NamedTuple):
    key: str
    """Empty: there are more actions in this turn than keys; it can be clicked."""
    action: int | str
    name: str


def choices(
    agent: AgentBase, space: Any, admissible: Sequence[str] | None = None
) -> tuple[Choice, ...]:
    """The actions that can be taken with a key each: the agent's keys, then digits and letters that it leaves free.

    Args:
        space: of the environment's actions.
        admissible: names of those that can be taken now. None: all of the space.
    Raises:
        EnvError: the space is not discrete and no action is named, or it has more actions than there are keys.
    """
    from gymnasium.spaces import Discrete

    actions = few_actions(space) if isinstance(space, Discrete) else admissible
    if not actions:
        raise EnvError(
            f"{agent.env_id} takes actions from {space}; only discrete actions can be taken with keys, "
            "so there is no table for a person."
        )
    keys: dict[int | str, str] = {action: key for key, action in agent.action_keys.items()}
    free = [key for key in SPARE_KEYS if key not in agent.action_keys]
    given = []
    for action in actions:
        natural = str(action)
        key = keys.get(action) or (natural if natural in free else free[0] if free else "")
        if not key and not admissible:
            raise EnvError(
                f"{agent.env_id} has {len(actions)} actions, more than there are keys for a person."
            )
        if key in free:
            free.remove(key)
        given.append(Choice(key, action, agent.action_name(action)))
    return tuple(choice for choice in given if admissible is None or choice.name in admissible)


def worded(agent: AgentBase, action: int | str, reasoning: str = "") -> str:
    """A person's action as a reply of the agent's, which begins with a sentence of reasoning if there is one.

    Raises:
        ActionParseError: with this sentence the reply would not be read as the action.
    """
    canonical = agent.format_action(action)
    if not (reasoning := reasoning.strip()):
        return canonical
    reply = f"{reasoning} {canonical}"
    reading = agent.read(reply)
    if reading.failed or reading.action != action:
        read = "no action" if reading.failed else agent.action_name(reading.action)
        raise ActionParseError(
            f"With this sentence the agent would read {read}, not {agent.action_name(action)}; word it otherwise."
        )
    return reply
