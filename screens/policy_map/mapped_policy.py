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
    def agrees(self) -> bool | None:
        """True if the most probable action is optimal; None if either is unknown."""
        return None if self.choice is None or not self.cell.best else self.choice in self.cell.best

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
        shares = iter(mapped.shares if mapped is not None else ())
        self.cells: dict[Spot, MappedCell] = {
            spot: MappedCell(cell, _finite(next(shares, ())) if cell.is_state else ())
            for spot, cell in _cells(layout)
        }

    @cached_property
    def count(self) -> Count:
        agrees = [cell.agrees for cell in self.cells.values()]
        return Count(agrees.count(True), agrees.count(True) + agrees.count(False))

    @cached_property
    def choices(self) -> Counter[int]:
        """The number of states in which each action is the most probable."""
        choices = (cell.choice for cell in self.cells.values())
        return Counter(choice for choice in choices if choice is not None)

    @property
    def words(self) -> str:
        """In how many states it plays as is best; empty if nobody knows what is."""
        layout, (agreeing, states) = self.layout, self.count
        if not states:
            return ""
        how = "as the expert does" if layout.best_is_experts else "optimally"
        how = f"like {one_line(layout.like)}" if layout.like else how
        return f"plays {how} in {agreeing:,} of {states:,} {one_line(layout.noun) or 'states'}"


def best_policy(layout: PolicyMapLaidOut) -> MappedPolicy:
    """The policy that takes each of the best actions equally often."""
    actions = range(len(layout.action_names))
    cells = (cell for _, cell in _cells(layout) if cell.is_state)
    shares = [
        [(action in cell.best) / len(cell.best) for action in actions] if cell.best else []
        for cell in cells
    ]
    return MappedPolicy(layout, PolicyMapped(update=0, prompt_version=0, shares=shares))


def changed_choices(before: MappedPolicy, after: MappedPolicy) -> frozenset[Spot]:
    """The cells of one layout, known before, in which another action became the most probable."""
    if before.layout is not after.layout:
        return frozenset()
    return frozenset(
        spot
        for spot, cell in after.cells.items()
        if before.cells[spot].choice not in (None, cell.choice)
    )


def compared_maps(layout: PolicyMapLaidOut | None, maps: Sequence[PolicyMapped]) -> Iterator[str]:
    """The play of A and B over the states of the map, and the number in which they differ."""
    if layout is None or len(maps) != 2:
        return
    both = [MappedPolicy(layout, each) for each in maps]
    for name, policy in zip("AB", both, strict=True):
        if policy.words:
            yield f"{name}  {policy.words}"
    differing = len(changed_choices(*both))
    yield f"B prefers another action in {differing:,} of {len(maps[0].shares):,} states"


def _finite(shares: Sequence[float]) -> tuple[float, ...]:
    return tuple(shares) if all(map(math.isfinite, shares)) else ()


def _cells(layout: PolicyMapLaidOut) -> Iterator[tuple[Spot, MapCell]]:
    for number, panel in enumerate(layout.panels):
        for row, cells in enumerate(panel.cells):
            for column, cell in enumerate(cells):
                if cell.words:
                    yield Spot(number, row, column), cell
