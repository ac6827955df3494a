"""Chat messages and conversations, in the form that chat templates and TRL's datasets expect."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, NotRequired, TypedDict

Role = Literal["system", "user", "assistant"]


class ChatMessage(TypedDict):
    role: Role
    content: str
    weight: NotRequired[Literal[0, 1]]
    """1 if supervised training learns this assistant message; 0 if it is only context for what
    follows. Absent: 1."""
    actions: NotRequired[list[str]]
    """In a user message, the names of the actions that are admissible then. Absent: all actions."""


Conversation = list[ChatMessage]
"""Messages in order: at most one system message first, then user and assistant in turn."""


class Preference(NamedTuple):
    """Two replies to the same conversation, of which one is better."""

    prompt: Conversation
    """The conversation so far, which ends with a user message."""
    chosen: str
    rejected: str


def system(content: str) -> ChatMessage:
    """A system message: what the agent is to do."""
    return {"role": "system", "content": content}


def user(content: str) -> ChatMessage:
    """A user message: what the environment shows."""
    return {"role": "user", "content": content}


def assistant(content: str) -> ChatMessage:
    """An assistant message: the agent's reply."""
    return {"role": "assistant", "content": content}


def with_actions(
    conversation: Conversation, admissible: Sequence[Sequence[str] | None]
) -> Conversation:
    """The conversation with the admissible actions in each user message that they are given for.

    Args:
        admissible: the names for each user message in order, None where all actions are admissible; may be too short.
    """
    given = iter(admissible)
    with_names: Conversation = []
    for message in conversation:
        actions = None
        if message["role"] == "user":
            actions = next(given, None)
        if actions is not None:
            message = {**message, "actions": list(actions)}
        with_names.append(message)
    return with_names


def opening(system_prompt: str) -> Conversation:
    """The start of an episode's conversation; an empty prompt means no system message."""
    return [system(system_prompt)] if system_prompt else []
