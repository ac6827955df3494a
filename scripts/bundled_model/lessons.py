"""What a lesson is: a system prompt, and short conversations that are to be held under it."""

from __future__ import annotations

from typing import NamedTuple


class Exchange(NamedTuple):
    """One turn: what the agent is told, and what it is to say."""

    observation: str
    reply: str
    state: tuple[int, int, int] | None = None
    """Blackjack's state, for the auxiliary state heads; None elsewhere."""


class Lesson(NamedTuple):
    """Conversations under one system prompt; each stands alone."""

    system_prompt: str
    conversations: list[list[Exchange]]
