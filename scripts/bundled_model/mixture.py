"""Which lessons the model gets, and how often each kind."""

from __future__ import annotations

from scripts.bundled_model import agents, blackjack, commands, worlds
from scripts.bundled_model.lessons import Chance, Lesson

SHARES = {worlds.lesson: 0.60, blackjack.lesson: 0.20, agents.lesson: 0.12, commands.lesson: 0.08}
"""Of all lessons; Blackjack and Frozen Lake together are less than a quarter."""


def lesson(
    rng: Chance, conversations: int, *, easy: float = 0.0, has_blackjack: bool = True
) -> Lesson:
    """A lesson of any kind; `easy` is the share of those that come before.

    Without Blackjack: the control, which shows what of the learning is PPO's.
    """
    if rng.random() < easy:
        return worlds.lesson(rng, conversations, easy=True)
    shares = {
        kind: share
        for kind, share in SHARES.items()
        if has_blackjack or kind is not blackjack.lesson
    }
    return rng.choices(list(shares), list(shares.values()))[0](rng, conversations)
