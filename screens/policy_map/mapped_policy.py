"""A policy map as it is drawn: what the policy does in each state, where that is optimal, text and colour of a cell.

Built from the events of the trainer; knows neither Textual nor the trainer.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from textual.app import App
from textual.color import Color
from textual.style import Style

from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.protocol.map_layout import MapCell
from llamagym_tui.screens.widgets.look import text_on


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
        self.layout = layout
        self.mapped = mapped
        shares = iter(mapped.shares if mapped is not None else ())
        self.cells: dict[Spot, MappedCell] = {
            spot: MappedCell(cell, _numbers(next(shares, ())) if cell.is_state else ())
            for spot, cell in _cells(layout)
        }
        """All cells but empty ones."""

    @cached_property
    def counts(self) -> list[Count]:
        panels = range(len(self.layout.panels))
        agreeing = [
            [cell.agrees for spot, cell in self.cells.items() if spot.panel == panel]
            for panel in panels
        ]
        return [Count(row.count(True), row.count(True) + row.count(False)) for row in agreeing]

    @cached_property
    def information(self) -> float | None:
        """Mutual information of state and action in nats, each state as often as any other; None: it is not known.

        The entropy of the mean distribution over actions, less the mean entropy of the states' own.
        """
        own = [
            [cell.share(action) for action in range(len(cell.shares))]
            for cell in self.cells.values()
            if sum(cell.shares)
        ]
        if not own:
            return None
        mean = [sum(shares) / len(own) for shares in zip(*own, strict=True)]
        return max(0.0, _entropy(mean) - sum(map(_entropy, own)) / len(own))

    @property
    def words(self) -> str:
        """In how many states it acts as is best, for people; empty: nobody knows what is."""
        layout, (agreeing, states) = self.layout, self.count
        how = "as the expert does" if layout.best_is_experts else "optimally"
        how = f"like {one_line(layout.like)}" if layout.like else how
        return (
            f"plays {how} in {agreeing:,} of {states:,} {one_line(layout.noun) or 'states'}"
            if states
            else ""
        )

    @property
    def count(self) -> Count:
        return Count(
            sum(count.agreeing for count in self.counts), sum(count.states for count in self.counts)
        )


def _entropy(shares: Sequence[float]) -> float:
    """In nats."""
    return -sum(share * math.log(share) for share in shares if share)


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
    for name, policy in zip("AB", both, strict=True):
        known = [policy.words] if policy.words else []
        if policy.information is not None:
            known.append(f"action information {policy.information:.3f} nats")
        if known:
            yield f"{name}  {', '.join(known)}"
    for number, panel in enumerate(layout.panels):
        title, labels = one_line(panel.title), [one_line(row) for row in panel.rows]
        names, wide = max(map(len, [title, *labels])), 2 * len(panel.columns) - 1
        yield from ("", f"{title:<{names}}  {'A':<{wide}}  {'B':<{wide}}  where B differs")
        for row, label in enumerate(labels):
            spots = [Spot(number, row, column) for column in range(len(panel.columns))]
            a, b = ([sign(layout, policy.cells.get(spot)) for spot in spots] for policy in both)
            other = [
                there if here != there or there == " " else "·"
                for here, there in zip(a, b, strict=True)
            ]
            yield "  ".join([label.rjust(names), *(" ".join(signs) for signs in (a, b, other))])


def sign(layout: PolicyMapLaidOut, cell: MappedCell | None) -> str:
    if cell is None:
        return " "
    return one_line(cell.cell.sign or ("?" if cell.choice is None else layout.signs[cell.choice]))


DIFFERS = "×"
"""Marks a cell in which the policy differs from the best actions that are known."""

BEST = (
    ("optimal", "optimal is", "the optimal strategy"),
    ("the expert", "the expert takes", "the expert's play"),
)
"""What is best, in words, by `PolicyMapLaidOut.best_is_experts`."""
UNKNOWN = "·"
"""Shown where it is not known what the policy does."""
LEVELS = 10
"""Steps of the colour scale."""
CERTAIN = 0.995
"""Probability from which on 100 % is shown."""


def policy_text(layout: PolicyMapLaidOut, cell: MappedCell, width: int) -> str:
    """What the policy does, in `width` cells: a probability, or an action and its probability."""
    if cell.cell.sign:
        return one_line(cell.cell.sign)
    if cell.choice is None:
        return UNKNOWN
    mark = DIFFERS if cell.agrees is False else " "
    if layout.action is not None:
        share = cell.share(layout.action)
        if width <= 2:
            return f"{min(_tenths(share), 9)}{mark}"
        return f"{100 * share:3.0f}{mark}" if width > 3 else f"{_tenths(share):2d}{mark}"
    sign, share = one_line(layout.signs[cell.choice]), cell.share(cell.choice)
    if width <= 2:
        return f"{sign}{mark}"
    if width > 5:
        return f"{sign}{100 * share:3.0f}%{mark}"
    if width > 3:
        return (
            f"{sign}{_tenths(share):<2d}{mark}"
            if share >= CERTAIN
            else f"{sign}{_tenths(share)}{mark}"
        )
    # There is no room for 10: an arrow alone is certain.
    return f"{sign} {mark}" if share >= CERTAIN else f"{sign}{_tenths(share)}{mark}"


def best_text(layout: PolicyMapLaidOut, cell: MappedCell) -> str:
    return one_line(cell.cell.sign or "".join(layout.signs[action] for action in cell.cell.best))


def policy_warmth(layout: PolicyMapLaidOut, cell: MappedCell) -> float | None:
    """Place on the colour scale, 0 to 1; None: no colour."""
    if cell.choice is None:
        return None
    return (
        cell.share(layout.action)
        if layout.action is not None
        else 0.5 - 0.5 * cell.share(cell.choice)
    )


def best_warmth(layout: PolicyMapLaidOut, cell: MappedCell) -> float | None:
    """Place of the optimal action on the same scale."""
    action, best = layout.action, cell.cell.best
    if not best:
        return None
    return 0.0 if action is None else 0.5 * ((action in best) + (best == [action]))


def colours(app: App[object], warmth: float | None) -> Style:
    """Colours of a place on the scale, from cold over neutral to warm."""
    if warmth is None:
        return Style()
    level = round(warmth * LEVELS) / LEVELS
    if app.native_ansi_color:
        if 0.3 < level < 0.7:
            return Style()
        return Style(
            Color.parse("ansi_blue" if level < 0.5 else "ansi_yellow"), Color.parse("ansi_black")
        )
    cold, neutral, warm = (
        Color.parse(app.theme_variables[name]) for name in ("map-cold", "panel", "map-warm")
    )
    ground = neutral.blend(cold if level < 0.5 else warm, abs(level - 0.5) * 2)
    return Style(ground, text_on(ground))


def _tenths(share: float) -> int:
    """A probability in tenths: 0 below one, 9 from nine on, 10 where it rounds to 100 %."""
    return 10 if share >= CERTAIN else min(int(10 * share), 9)
