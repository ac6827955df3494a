"""A lesson of the bundled model: a system prompt, and short conversations under it that the model imitates."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

MOST_VALUES = 8
MOST_HINTS = 10
VALUE = re.compile(r"\d+|\b(?:yes|no|ace|hole|ice|goal|wall|road|cliff|edge|ground|start)\b")


class Chance(random.Random):
    """Random choices that begin narrow: names, wordings and forms are listed from plain to odd."""

    def __init__(self, seed: str | int, variety: float = 1.0) -> None:
        super().__init__(seed)
        self.variety = variety
        """Share of each list, from its beginning, that is chosen from."""

    def of(self, choices: Sequence[T]) -> T:
        return self.choice(choices[: math.ceil(self.variety * len(choices))])


class Mark(NamedTuple):
    """What an auxiliary head reads off one word of a text: '' for nothing."""

    at: int
    """Place of the word's last character."""
    about: str = ""
    """Whether the instruction is about this number: yes or no."""
    holds: str = ""
    """Whether its condition holds, as far as this number decides it: yes or no."""
    less: str = ""
    """Whether it is less than what it is compared with: yes or no."""
    index: str = ""
    """The number of the action that this word names."""
    role: str = ""
    """Whether it is to be taken where the condition holds: yes or no."""


class Exchange(NamedTuple):
    """One turn: an observation, and the reply that is imitated."""

    observation: str
    reply: str
    values: tuple[str, ...] = ()
    """What the observation says, in its order: read off the last token before the reply by auxiliary heads."""
    hints: tuple[str, ...] = ()
    """What following the instruction takes: read off the reply's first token."""
    marks: tuple[Mark, ...] = ()
    """In the observation."""


class Lesson(NamedTuple):
    """Conversations under one system prompt; each stands alone."""

    system_prompt: str
    conversations: list[list[Exchange]]
    marks: tuple[Mark, ...] = ()
    """In the system prompt."""


def numbers_in(observation: str) -> tuple[str, ...]:
    """The numbers and small words of an observation, as far as they are read."""
    return tuple(VALUE.findall(observation)[:MOST_VALUES])
