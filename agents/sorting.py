"""Sorting-v0: put the things that a shop gets on their shelves. A third of the words is met in evaluations alone, so
what is right there was not learnt in the run: the model has read it."""

import json
import random
from pathlib import Path
from typing import Any

from llamagym_tui.agent import Agent, Panel, PolicyMap

KINDS: dict[str, list[str]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
"""The words of each kind."""
SHELVES = {word: shelf for shelf, words in enumerate(KINDS.values()) for word in words}
"""The right shelf of each word."""
_RNG = random.Random(0)
HELD_OUT = {word for words in KINDS.values() for word in _RNG.sample(words, len(words) // 3)}
"""A third of each kind, the same in every run, which training never meets."""
WORDS = {"training": sorted(set(SHELVES) - HELD_OUT), "held out": sorted(HELD_OUT)}
"""What deliveries are drawn from."""
SHOWN = "123456"
"""Numbers of the words of each kind that a panel of the policy map shows."""


class SortingAgent(Agent):
    """Plays ``Sorting-v0``; an observation is a word."""

    history = 0
    env_id = "llamagym_tui.agents._sorting_env:Sorting-v0"
    items = tuple(SHELVES)
    env_kwargs = {"words": "training"}
    evaluation_kwargs = {"words": "held out"}
    title = "Sorting"
    description = "Put things on the right shelves of a shop, also things never met before."
    action_names = tuple(KINDS)
    action_keys = dict(zip("acdlfuiswtgv", range(len(KINDS)), strict=True))
    baselines = {"random": 0.3333, "optimal": 4.0}
    """Exact mean returns."""
    return_unit = "of four things"

    def get_system_prompt(self) -> str:
        shelves = ", ".join(KINDS)
        return f"You sort the deliveries of a shop. Name the shelf for each thing: {shelves}."

    def format_observation(self, observation: Any) -> str:
        return f"The next thing is: {observation}."

    def format_action(self, action: Any) -> str:
        """The name of the shelf: in one token, where two-digit numbers part late."""
        return self.action_name(action)

    def describe_turn(self, observation: Any, action: Any, reward: float) -> str:
        return str(observation)

    def expert(self, observation: Any) -> int:
        """The right shelf."""
        return SHELVES[observation]

    def policy_map(self) -> PolicyMap:
        """The shelf of some words of each kind, those of training beside those that it never meets."""
        panels = []
        for title, words in WORDS.items():
            rows = []
            for shelf in range(len(KINDS)):
                of_kind = [word for word in words if SHELVES[word] == shelf]
                rows.append(of_kind[: len(SHOWN)])
            panels.append(Panel(title, list(KINDS), SHOWN, rows, "kind", "word"))
        return PolicyMap(panels, signs="ACDLFUISWTGV", noun="words")
