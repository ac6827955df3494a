"""Chat messages and conversations, in the form that chat templates and TRL's datasets take."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, NotRequired, TypedDict

Role = Literal["system", "user", "assistant"]


class ChatMessage(TypedDict):
    role: Role
    content: str
    weight: NotRequired[Literal[0, 1]]
    """Of an assistant message in supervised training: 0, it is there for what follows alone. Absent: 1."""
    actions: NotRequired[list[str]]
    """Of a user message: names of the actions that are admissible then. Absent: those of every turn."""


Conversation = list[ChatMessage]
"""Messages in order: at most one system message first, then user and assistant in turn."""


class Preference(NamedTuple):
    """Two replies to the same conversation, of which one is better."""

    prompt: Conversation
    """It ends with a user's message."""
    chosen: str
    rejected: str


def system(content: str) -> ChatMessage:
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
    """The conversation with the admissible actions of each user message, as far as these are given."""
    given = iter(admissible)
    named: Conversation = []
    for message in conversation:
        actions = next(given, None) if message["role"] == "user" else None
        named.append(message if actions is None else {**message, "actions": list(actions)})
    return named


def opening(system_prompt: str) -> Conversation:
    """The start of an episode's conversation; an empty prompt means no system message."""
    return [system(system_prompt)] if system_prompt else []
