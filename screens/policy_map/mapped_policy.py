"""A policy map: the action probabilities in each state, and the states in which the policy plays as is best."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.protocol.map_layout import MapCell


class Spot(NamedTuple):
    panel: int
    row: int
    column: int


class MappedCell(NamedTuple):
    cell: MapCell
    shares: tuple[float, ...]
    """Probability of each action; empty where it is unknown or not finite."""

    @property
    def choice(self) -> int | None:
        """The most probable action, the first of equals."""
        return max(range(len(self.shares)), key=self.shares.__getitem__) if self.shares else None

    @property
    def is_chosen(self) -> bool:
        """True if the policy takes an action here: in a state any, in a field of a board the field's own."""
        return self.choice is not None and self.cell.action in (None, self.choice)

    @property
    def plays_best(self) -> bool | None:
        """True if the most probable action in the state is optimal; None if either is unknown."""
        return None if self.choice is None or not self.cell.best else self.choice in self.cell.best

    @property
    def agrees(self) -> bool | None:
        """The same where that action is taken; None in the other fields of a board."""
        return self.plays_best if self.is_chosen else None

    def share(self, action: int) -> float:
        """Probability of an action given that the reply names one."""
        total = sum(self.shares)
        return self.shares[action] / total if total else 0.0


class Count(NamedTuple):
    agreeing: int
    """States in which the policy plays as is best."""
    states: int
    """States in which the best action is known."""


class MappedPolicy:
    def __init__(self, layout: PolicyMapLaidOut, mapped: PolicyMapped | None) -> None:
        self.layout = layout
        self.mapped = mapped
        shares = mapped.shares if mapped is not None else ()
        known = dict(zip(_states(layout), map(_finite, shares), strict=False))
        self.cells: dict[Spot, MappedCell] = {}
        for spot, cell in _cells(layout):
            of_state = known.get(cell.words, ()) if cell.is_state else ()
            self.cells[spot] = MappedCell(cell, of_state)

    @cached_property
    def count(self) -> Count:
        plays_best = [cell.plays_best for cell in self.states.values()]
        agreeing = plays_best.count(True)
        return Count(agreeing, agreeing + plays_best.count(False))

    @cached_property
    def choices(self) -> Counter[int]:
        """The number of states in which each action is the most probable."""
        choices = (cell.choice for cell in self.states.values())
        return Counter(choice for choice in choices if choice is not None)

    @property
    def states(self) -> dict[str, MappedCell]:
        """A cell of each state, by its words, in the order in which they are evaluated."""
        return {cell.cell.words: cell for cell in self.cells.values() if cell.cell.is_state}

    @property
    def words(self) -> str:
        """In how many states it plays as is best; empty if nobody knows what is."""
        agreeing, states = self.count
        return f"plays {self.how} in {agreeing:,} of {states:,} {self.noun}" if states else ""

    @property
    def noun(self) -> str:
        """The states in a word."""
        return one_line(self.layout.noun) or "states"

    @property
    def how(self) -> str:
        """How it plays where it plays as is best."""
        if self.layout.like:
            return f"like {one_line(self.layout.like)}"
        return "as the expert does" if self.layout.best_is_experts else "as is best"


def best_policy(layout: PolicyMapLaidOut) -> MappedPolicy:
    """The policy that takes each of the best actions equally often."""
    actions = range(len(layout.action_names))
    shares = [
        [(action in cell.best) / len(cell.best) for action in actions] if cell.best else []
        for cell in _states(layout).values()
    ]
    return MappedPolicy(layout, PolicyMapped(update=0, prompt_version=0, shares=shares))


def changed_choices(before: MappedPolicy, after: MappedPolicy) -> frozenset[Spot]:
    """The cells of one layout, known before, in which another action became the most probable."""
    if before.layout is not after.layout:
        return frozenset()
    return frozenset(
        spot
        for spot, cell in after.cells.items()
        if cell.is_chosen and before.cells[spot].choice not in (None, cell.choice)
    )


def play_changes(before: MappedPolicy, after: MappedPolicy) -> str:
    """In how many states another action is preferred, and in which share of all the one that gained most."""
    old, new = before.choices, after.choices
    states = new.total()
    text = f"{len(changed_choices(before, after)):,} of {states:,} {after.noun} change"
    for action, _ in (new - old).most_common(1):
        name = one_line(after.layout.action_names[action])
        text += f"; {name} {old[action] / states:.0%} → {new[action] / states:.0%}"
    return text


def _finite(shares: Sequence[float]) -> tuple[float, ...]:
    return tuple(shares) if all(map(math.isfinite, shares)) else ()


def _states(layout: PolicyMapLaidOut) -> dict[str, MapCell]:
    """Each state once, by its words, in the order in which they are evaluated."""
    found: dict[str, MapCell] = {}
    for _, cell in _cells(layout):
        if cell.is_state:
            found.setdefault(cell.words, cell)
    return found


def _cells(layout: PolicyMapLaidOut) -> Iterator[tuple[Spot, MapCell]]:
    for number, panel in enumerate(layout.panels):
        for row, cells in enumerate(panel.cells):
            for column, cell in enumerate(cells):
                if cell.words:
                    yield Spot(number, row, column), cell
