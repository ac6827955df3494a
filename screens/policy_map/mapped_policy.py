"""A policy map as it is drawn: what the policy does in each state, and where that is optimal.

Built from the events of the trainer; knows neither Textual nor the trainer.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.protocol.policy_map import MapCell


class Spot(NamedTuple):
    panel: int
    row: int
    column: int


class MappedCell(NamedTuple):
    cell: MapCell
    shares: tuple[float, ...]
    """Probability of each action; empty: no state, not computed yet, or not finite, as of a policy that diverged."""

    @property
    def choice(self) -> int | None:
        """The most probable action, the first of equals; None: not known."""
        return max(range(len(self.shares)), key=self.shares.__getitem__) if self.shares else None

    @property
    def agrees(self) -> bool | None:
        """Whether the most probable action is optimal; None: one of the two is not known."""
        return None if self.choice is None or not self.cell.best else self.choice in self.cell.best

    def share(self, action: int) -> float:
        """Probability of an action among the actions: other replies are left out."""
        total = sum(self.shares)
        return self.shares[action] / total if total else 0.0


class Count(NamedTuple):
    """States in which the policy agrees with the optimal strategy."""

    agreeing: int
    states: int
    """In which both are known."""


class MappedPolicy:
    """The cells of a map, with what the policy does in each."""

    def __init__(self, layout: PolicyMapLaidOut, mapped: PolicyMapped | None) -> None:
        self.layout, self.mapped = layout, mapped
        shares = iter(mapped.shares if mapped is not None else ())
        self.cells: dict[Spot, MappedCell] = {
            spot: MappedCell(cell, _numbers(next(shares, ())) if cell.is_state else ()) for spot, cell in _cells(layout)
        }
        """All cells but empty ones."""

    @cached_property
    def counts(self) -> list[Count]:
        panels = range(len(self.layout.panels))
        agreeing = [[cell.agrees for spot, cell in self.cells.items() if spot.panel == panel] for panel in panels]
        return [Count(row.count(True), row.count(True) + row.count(False)) for row in agreeing]

    @property
    def words(self) -> str:
        """In how many states it acts as is best, for people; empty: nobody knows what is."""
        layout, (agreeing, states) = self.layout, self.count
        how = "as the expert does" if layout.best_is_experts else "optimally"
        how = f"like {one_line(layout.like)}" if layout.like else how
        return f"plays {how} in {agreeing:,} of {states:,} {one_line(layout.noun) or 'states'}" if states else ""

    @property
    def count(self) -> Count:
        return Count(sum(count.agreeing for count in self.counts), sum(count.states for count in self.counts))


def _numbers(shares: Sequence[float]) -> tuple[float, ...]:
    return tuple(shares) if all(map(math.isfinite, shares)) else ()


def _cells(layout: PolicyMapLaidOut) -> Iterator[tuple[Spot, MapCell]]:
    for number, panel in enumerate(layout.panels):
        for row, cells in enumerate(panel.cells):
            for column, cell in enumerate(cells):
                if cell.words:
                    yield Spot(number, row, column), cell


def side_by_side(layout: PolicyMapLaidOut | None, maps: Sequence[PolicyMapped]) -> Iterator[str]:
    """How far A and B play as is best; their likeliest actions, panel by panel, and those of B that are others."""
    if layout is None or len(maps) != 2:
        return
    both = [MappedPolicy(layout, each) for each in maps]
    yield from (f"{name}  {policy.words}" for name, policy in zip("AB", both, strict=True) if policy.words)
    for number, panel in enumerate(layout.panels):
        title, labels = one_line(panel.title), [one_line(row) for row in panel.rows]
        names, wide = max(map(len, [title, *labels])), 2 * len(panel.columns) - 1
        yield from ("", f"{title:<{names}}  {'A':<{wide}}  {'B':<{wide}}  where B differs")
        for row, label in enumerate(labels):
            spots = [Spot(number, row, column) for column in range(len(panel.columns))]
            a, b = ([sign(layout, policy.cells.get(spot)) for spot in spots] for policy in both)
            other = [there if here != there or there == " " else "·" for here, there in zip(a, b, strict=True)]
            yield "  ".join([label.rjust(names), *(" ".join(signs) for signs in (a, b, other))])


def sign(layout: PolicyMapLaidOut, cell: MappedCell | None) -> str:
    if cell is None:
        return " "
    return one_line(cell.cell.sign or ("?" if cell.choice is None else layout.signs[cell.choice]))
