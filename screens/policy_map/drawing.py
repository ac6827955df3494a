"""The one drawing of a policy map: lines of text with styles, for the terminal and for an SVG.

Nothing is shown by colour alone: probabilities are digits, actions are signs, and × marks a difference from the best.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import set_cell_size
from textual.style import Style

from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.mapped_policy import MappedCell, MappedPolicy, Spot
from llamagym_tui.screens.widgets.numbers import share

APART = 3
"""Columns between two panels."""
MOST_LABEL = 12
WALL = "│"
DIFFERS = "×"
UNKNOWN = "·"
LEAST_REST = 0.005
"""The smallest share of other replies that is mentioned."""


class CellSize(NamedTuple):
    width: int
    height: int


SIZES = tuple(CellSize(*size) for size in ((7, 3), (5, 2), (5, 1), (4, 1), (3, 1), (2, 1)))


class Place(NamedTuple):
    x: int
    y: int
    label: int
    """Width of the row labels."""


class Places(NamedTuple):
    panels: tuple[Place, ...]
    cell: CellSize
    width: int
    height: int

    def of(self, spot: Spot) -> tuple[int, int]:
        """(column, line) where a cell begins."""
        place = self.panels[spot.panel]
        x = place.x + place.label + spot.column * self.cell.width
        return x, place.y + 1 + spot.row * self.cell.height


class Piece(NamedTuple):
    text: str
    style: Style
    spot: Spot | None = None
    """The cell that it belongs to."""


StyleOf = Callable[[MappedCell, float | None], Style]
"""The style of a cell by its place on the scale from cold (0) to warm (1)."""


def places_for(
    layout: PolicyMapLaidOut, width: int, height: int, sizes: Sequence[CellSize] = SIZES
) -> Places:
    """The largest cells that fit; if none do, the smallest, with panels below each other."""
    found = [
        _places(layout, size, across)
        for size in sizes
        for across in range(len(layout.panels) or 1, 0, -1)
    ]
    fitting = [places for places in found if places.width <= width and places.height <= height]
    return max(fitting, key=lambda each: each.cell.width * each.cell.height, default=found[-1])


def _places(layout: PolicyMapLaidOut, cell: CellSize, across: int) -> Places:
    """Panels with `across` of them next to each other."""
    panels: list[Place] = []
    x = y = bottom = widest = 0
    for number, panel in enumerate(layout.panels, 1):
        label = min(max(map(len, [panel.title, *panel.rows])), MOST_LABEL) + 1
        panels.append(Place(x, y, label))
        x += label + len(panel.columns) * cell.width
        widest = max(widest, x)
        bottom = max(bottom, y + 1 + len(panel.rows) * cell.height)
        x += APART
        if number % across == 0:
            x = 0
            y = bottom
    return Places(tuple(panels), cell, widest, bottom)


def map_line(policy: MappedPolicy, places: Places, y: int, style_of: StyleOf) -> Iterator[Piece]:
    """Line `y` of the map."""
    at = 0
    for number, (place, panel) in enumerate(zip(places.panels, policy.layout.panels, strict=True)):
        row, inner = divmod(y - place.y - 1, places.cell.height)
        if not -1 <= row < len(panel.rows):
            continue
        yield Piece(" " * (place.x - at), Style())
        if row < 0:
            yield Piece(_fitted(panel.title, place.label - 1) + " ", Style(bold=True))
            for label in panel.columns:
                yield Piece(_centred(label, places.cell.width), Style(dim=True))
        else:
            is_middle = inner == (places.cell.height - 1) // 2
            label = one_line(panel.rows[row]) if is_middle else ""
            yield Piece(_fitted(label.rjust(place.label - 1), place.label), Style(dim=True))
            for column in range(len(panel.columns)):
                spot = Spot(number, row, column)
                yield _cell(policy, spot, places.cell.width, style_of, is_middle)
        at = place.x + place.label + len(panel.columns) * places.cell.width


def _cell(
    policy: MappedPolicy, spot: Spot, width: int, style_of: StyleOf, is_middle: bool
) -> Piece:
    cell, layout = policy.cells.get(spot), policy.layout
    if cell is None:
        return Piece(" " * width, Style())
    style = style_of(cell, policy_warmth(layout, cell))
    if cell.cell.sign or cell.agrees is False:
        style += Style(bold=True)
    shown = _centred(policy_text(layout, cell, width) if is_middle else "", width)
    if cell.cell.has_wall and shown.endswith(" "):
        shown = shown[:-1] + WALL
    return Piece(shown, style, spot)


def policy_text(layout: PolicyMapLaidOut, cell: MappedCell, width: int) -> str:
    """The probability of the mapped action, or the most probable action and its probability."""
    if cell.cell.sign:
        return one_line(cell.cell.sign)
    if cell.choice is None:
        return UNKNOWN
    mark = DIFFERS if cell.agrees is False else " "
    if layout.action is not None:
        share = cell.share(layout.action)
        return f"{100 * share:3.0f}{mark}" if width > 3 else f"{_tenths(share)}{mark}"
    sign, share = one_line(layout.signs[cell.choice]), cell.share(cell.choice)
    if width > 5:
        return f"{sign}{100 * share:3.0f}%{mark}"
    return f"{sign}{_tenths(share) if width > 2 else ''}{mark}"


def _tenths(share: float) -> int:
    return min(int(10 * share), 9)


def policy_warmth(layout: PolicyMapLaidOut, cell: MappedCell) -> float | None:
    """Place on the colour scale: warm for the mapped action, or cold the surer the choice is."""
    if cell.choice is None:
        return None
    if layout.action is not None:
        return cell.share(layout.action)
    return 0.5 - 0.5 * cell.share(cell.choice)


def best_name(layout: PolicyMapLaidOut) -> str:
    return "the expert" if layout.best_is_experts else "optimal play"


def describe(policy: MappedPolicy, cell: MappedCell) -> str:
    """The probabilities in a cell, and the best action."""
    layout = policy.layout
    if cell.cell.sign:
        return "no action here"
    if not cell.shares:
        return "not known"
    names = [one_line(name) for name in layout.action_names]
    parts = [f"{name} {share(p)}" for name, p in zip(names, cell.shares, strict=False)]
    if (rest := 1 - sum(cell.shares)) >= LEAST_REST:
        parts.append(f"other replies {share(rest)}")
    if cell.agrees is None:
        return ", ".join(parts)
    verdict = "agrees" if cell.agrees else f"{DIFFERS} differs"
    best = " or ".join(names[action] for action in cell.cell.best)
    return f"{verdict}, {best_name(layout)}: {best}. {', '.join(parts)}"


def legend(layout: PolicyMapLaidOut, width: int) -> str:
    """The signs in cells of a width."""
    differs = f"{DIFFERS} {'unlike the expert' if layout.best_is_experts else 'not optimal'}"
    if layout.action is not None:
        scale = "in tenths" if width <= 3 else "in %"
        return f"P({one_line(layout.action_names[layout.action])}) {scale}, {differs}"
    digit = ", 3 is 30–39%" if 2 < width <= 5 else ""
    pairs = zip(layout.signs, layout.action_names, strict=True)
    signs = " ".join(f"{one_line(sign)} {one_line(name)}" for sign, name in pairs)
    return f"{signs}{digit}, {differs}"


def _fitted(text: str, width: int) -> str:
    return set_cell_size(one_line(text) if text.strip() else text, width)


def _centred(text: str, width: int) -> str:
    text = one_line(text) if text.strip() == text else text
    return set_cell_size(" " * max(0, (width - len(text)) // 2) + text, width)
