"""The kinds of lesson, and how often the model gets each."""

from __future__ import annotations

from scripts.bundled_model import agents, blackjack, commands, worlds
from scripts.bundled_model.lessons import Chance, Lesson

SHARES = {worlds.lesson: 0.60, blackjack.lesson: 0.20, agents.lesson: 0.12, commands.lesson: 0.08}
"""Share of each kind; Blackjack and Frozen Lake together have less than a quarter."""


def lesson(rng: Chance, conversations: int, *, easy: float = 0.0) -> Lesson:
    """Draw a lesson of any kind; `easy` is the share of easy ones."""
    if rng.random() < easy:
        return worlds.lesson(rng, conversations, easy=True)
    return rng.choices(list(SHARES), list(SHARES.values()))[0](rng, conversations)
