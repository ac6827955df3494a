"""A lesson of the bundled model: a system prompt, and short conversations under it that the model imitates."""

from __future__ import annotations

from typing import NamedTuple


class Exchange(NamedTuple):
    """One turn: an observation, and the reply that is imitated."""

    observation: str
    reply: str
    state: tuple[int, int, int] | None = None
    """Blackjack's state, for the auxiliary state heads; None elsewhere."""


class Lesson(NamedTuple):
    """Conversations under one system prompt; each stands alone."""

    system_prompt: str
    conversations: list[list[Exchange]]
