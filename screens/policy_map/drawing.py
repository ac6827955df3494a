"""The one drawing of a policy map: lines of text with styles, for the terminal and for an SVG.

Colour says which action and how surely, a sign which of many, and ◦ that another is best. Where there are no colours,
shades stand for them. Digits are at the cursor alone.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from rich.cells import set_cell_size
from textual.color import Color
from textual.style import Style

from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.protocol.map_layout import MapPanel
from llamagym_tui.screens.policy_map.mapped_policy import MappedCell, MappedPolicy, Spot
from llamagym_tui.screens.widgets.look import text_on
from llamagym_tui.screens.widgets.numbers import share

COLD = Color.parse("#4a86d0")
WARM = Color.parse("#e5a93d")
"""The ends of the scale in every theme: people who are blind to some colours can tell them apart."""
LEVELS = 10
"""Steps of the scale."""
APART = 3
"""Columns between two panels."""
MOST_LABEL = 12
WALL = "│"
DIFFERS = "◦"
UNKNOWN = "·"
SHADES = " ░▒▓█"
"""What a probability looks like without colours."""
HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
"""A character by what is filled of it, the upper half and the lower one."""
SURE = 0.5
"""The probability from which on an action is bold where there are no colours."""
LEAST_REST = 0.005
"""The smallest share of other replies that is mentioned."""


class CellSize(NamedTuple):
    width: int
    height: int
    is_half: bool = False
    """True if a line has two rows of cells, which have no room for signs."""

    @property
    def area(self) -> int:
        """In half lines."""
        return self.width * self.height * (1 if self.is_half else 2)

    def lines(self, rows: int) -> int:
        """Lines that some rows of cells take."""
        return (rows + 1) // 2 if self.is_half else rows * self.height


SIZES = (
    *(CellSize(*size) for size in ((7, 3), (5, 2), (5, 1), (4, 1), (3, 1), (2, 1))),
    *(CellSize(width, 1, is_half=True) for width in (3, 2, 1)),
)


class Place(NamedTuple):
    panel: int
    x: int
    y: int
    label: int
    """Width of the row labels."""


class Places(NamedTuple):
    panels: tuple[Place, ...]
    """Those panels that are shown."""
    cell: CellSize
    width: int
    height: int

    def of(self, spot: Spot) -> tuple[int, int]:
        """(column, line) where a cell begins; its panel is shown."""
        place = next(place for place in self.panels if place.panel == spot.panel)
        x = place.x + place.label + spot.column * self.cell.width
        row = spot.row // 2 if self.cell.is_half else spot.row * self.cell.height
        return x, place.y + 1 + row

    def in_halves(self, spot: Spot) -> tuple[int, int]:
        """(column, half line) where a cell begins; no two cells begin at the same place."""
        x, y = self.of(spot)
        return x, 2 * y + (spot.row % 2 if self.cell.is_half else 0)

    def fits(self, width: int, height: int) -> bool:
        return self.width <= width and self.height <= height

    def shows(self, spot: Spot) -> bool:
        return any(place.panel == spot.panel for place in self.panels)


class Piece(NamedTuple):
    text: str
    style: Style
    spot: Spot | None = None
    """The cell that it belongs to."""


StyleOf = Callable[[Spot, MappedCell, float | None], Style]
"""The style of a cell by its place on the scale from cold (0) to warm (1); without a ground, shades stand for it."""


def places_for(
    layout: PolicyMapLaidOut,
    width: int,
    height: int,
    sizes: Sequence[CellSize] = SIZES,
    panel: int = 0,
) -> Places:
    """The largest cells with which all panels fit, or else each alone, or else the smallest ones, below each other.

    Args:
        panel: the one that is shown where there is room for one only.
    """
    everything = range(len(layout.panels))
    sizes = [size for size in sizes if not size.is_half or layout.action is not None]
    found: list[Places] = []
    if not layout.shows_one:
        for size in sizes:
            for across in range(len(everything) or 1, 0, -1):
                found.append(_places(layout, everything, size, across))
    if fitting := [places for places in found if places.fits(width, height)]:
        return max(fitting, key=lambda places: places.cell.area)
    for size in sorted(sizes, key=lambda size: -size.area):
        alone = [_places(layout, [number], size, 1) for number in everything]
        if alone and all(places.fits(width, height) for places in alone):
            return alone[panel]
    return _places(layout, [panel] if layout.shows_one else everything, sizes[-1], 1)


def _places(layout: PolicyMapLaidOut, shown: Sequence[int], cell: CellSize, across: int) -> Places:
    """Panels with `across` of them next to each other."""
    places: list[Place] = []
    x = y = bottom = widest = 0
    for at, number in enumerate(shown, 1):
        panel = layout.panels[number]
        label = 0
        if not _is_board(panel):
            label = min(max(map(len, [panel.title, *panel.rows])), MOST_LABEL) + 1
        places.append(Place(number, x, y, label))
        x += label + len(panel.columns) * cell.width
        widest = max(widest, x)
        bottom = max(bottom, y + 1 + cell.lines(len(panel.rows)))
        x += APART
        if at % across == 0:
            x = 0
            y = bottom
    return Places(tuple(places), cell, widest, bottom)


def _is_board(panel: MapPanel) -> bool:
    """True if rows and columns have no names."""
    return not any(panel.rows) and not any(panel.columns)


def map_line(
    policy: MappedPolicy, places: Places, y: int, style_of: StyleOf, pointed: Spot | None = None
) -> Iterator[Piece]:
    """Line `y` of the map.

    Args:
        pointed: the cell that has digits.
    """
    at = 0
    for place in places.panels:
        panel = policy.layout.panels[place.panel]
        line = y - place.y - 1
        if not -1 <= line < places.cell.lines(len(panel.rows)):
            continue
        yield Piece(" " * (place.x - at), Style())
        if line < 0:
            yield from _title_line(panel, place, places.cell)
        elif places.cell.is_half:
            yield from _half_line(policy, place, 2 * line, places.cell.width, style_of)
        else:
            row, inner = divmod(line, places.cell.height)
            is_middle = inner == (places.cell.height - 1) // 2
            yield _row_label(panel.rows[row] if is_middle else "", place)
            for column in range(len(panel.columns)):
                spot = Spot(place.panel, row, column)
                yield _cell(
                    policy,
                    spot,
                    places.cell.width,
                    style_of,
                    is_middle=is_middle,
                    has_digits=spot == pointed,
                )
        at = place.x + place.label + len(panel.columns) * places.cell.width


def _title_line(panel: MapPanel, place: Place, cell: CellSize) -> Iterator[Piece]:
    """The title beside the names of the columns, or alone above a board."""
    if _is_board(panel):
        yield Piece(_fitted(panel.title, len(panel.columns) * cell.width), Style(bold=True))
        return
    yield Piece(_fitted(panel.title, place.label - 1) + " ", Style(bold=True))
    every = _every(panel.columns, cell.width)
    for at in range(0, len(panel.columns), every):
        label = panel.columns[at]
        room = min(every, len(panel.columns) - at) * cell.width
        if cell.width == 1 and every == 1:
            label = label[-1:]
        elif every > 1 and len(label) > room:
            label = ""
        yield Piece(_centred(label, room), Style(dim=True))


def _every(labels: Sequence[str], width: int) -> int:
    """Each how many columns has its label, so that a label that is cut is not taken for another."""
    cut = [label[-1:] if width == 1 else label[:width] for label in labels]
    if len(set(cut)) == len(set(labels)):
        return 1
    longest = max(map(len, labels))
    return -(-(longest + 1) // width)


def _row_label(label: str, place: Place) -> Piece:
    text = one_line(label).rjust(place.label - 1) if label else ""
    return Piece(_fitted(text, place.label), Style(dim=True))


def _half_line(
    policy: MappedPolicy, place: Place, row: int, width: int, style_of: StyleOf
) -> Iterator[Piece]:
    """Two rows of cells: the upper and the lower half of each character."""
    panel = policy.layout.panels[place.panel]
    yield _row_label(panel.rows[row], place)
    for column in range(len(panel.columns)):
        spots = [Spot(place.panel, at, column) for at in (row, row + 1)]
        upper, lower = [_cell(policy, spot, 1, style_of) for spot in spots]
        above = _ground(upper.style)
        below = _ground(lower.style)
        if above is None and below is None:
            cells = [policy.cells.get(spot) for spot in spots]
            filled = [cell is not None and cell.choice == policy.layout.action for cell in cells]
            yield Piece(HALVES[filled[0], filled[1]] * width, Style(), upper.spot)
        elif above is None:
            yield Piece("▄" * width, Style(foreground=below), upper.spot)
        else:
            yield Piece("▀" * width, Style(below, above), upper.spot)


def _ground(style: Style) -> Color | None:
    return style.foreground if style.reverse else style.background


def _cell(
    policy: MappedPolicy,
    spot: Spot,
    width: int,
    style_of: StyleOf,
    *,
    is_middle: bool = True,
    has_digits: bool = False,
) -> Piece:
    cell, layout = policy.cells.get(spot), policy.layout
    if cell is None:
        return Piece(" " * width, Style())
    warmth = policy_warmth(layout, cell)
    style = style_of(spot, cell, warmth)
    has_shades = style.background is None and warmth is not None
    if cell.cell.sign or (has_shades and cell.is_chosen and cell.share(cell.choice or 0) >= SURE):
        style += Style(bold=True)
    text = ""
    if is_middle:
        text = policy_text(layout, cell, width, has_digits=has_digits)
    shown = _centred(text, width)
    if has_shades and layout.action is not None and not has_digits:
        shade = _shade(cell.share(layout.action))
        shown = shade * width if text.strip() != DIFFERS else shade * (width - 1) + DIFFERS
    if cell.cell.has_wall and shown.endswith(" "):
        shown = shown[:-1] + WALL
    return Piece(shown, style, spot)


def policy_text(
    layout: PolicyMapLaidOut, cell: MappedCell, width: int, *, has_digits: bool = False
) -> str:
    """The sign of the most probable action if there are more than one colour says, and a mark if another is best."""
    if cell.cell.sign:
        return f"{one_line(cell.cell.sign)} "
    if cell.choice is None:
        return f"{UNKNOWN} "
    mark = DIFFERS if cell.agrees is False and width > 1 else " "
    shown = layout.action if layout.action is not None else cell.cell.action
    sign = ""
    if layout.action is None:
        sign = one_line(layout.signs[cell.choice]) if cell.is_chosen else UNKNOWN
    percent = f"{100 * cell.share(cell.choice if shown is None else shown):.0f}"
    if has_digits and width > len(sign + percent):
        return f"{sign}{percent}{mark}"
    return f"{sign}{mark}"


def _shade(share: float) -> str:
    return SHADES[min(int(len(SHADES) * share), len(SHADES) - 1)]


def policy_warmth(layout: PolicyMapLaidOut, cell: MappedCell) -> float | None:
    """Place on the colour scale: warm for the mapped action, or cold the surer the action is."""
    if cell.choice is None:
        return None
    if layout.action is not None:
        return cell.share(layout.action)
    action = cell.choice if cell.cell.action is None else cell.cell.action
    return 0.5 - 0.5 * cell.share(action)


def best_name(layout: PolicyMapLaidOut) -> str:
    return "the expert" if layout.best_is_experts else "the best play"


def describe(policy: MappedPolicy, cell: MappedCell) -> str:
    """The probabilities in a cell, and the best action."""
    layout = policy.layout
    if cell.cell.sign:
        return "no action here"
    if not cell.shares:
        return "not known"
    names = [one_line(name) for name in layout.action_names]
    parts = [f"{name} {share(p)}" for name, p in zip(names, cell.shares, strict=False)]
    if cell.cell.action is not None:
        parts = [parts[cell.cell.action]]
    elif (rest := 1 - sum(cell.shares)) >= LEAST_REST:
        parts.append(f"other replies {share(rest)}")
    if cell.agrees is None:
        return ", ".join(parts)
    best = " or ".join(names[action] for action in cell.cell.best)
    sign = "" if cell.agrees else f"{DIFFERS} "
    return f"{sign}the model: {', '.join(parts)}; {best_name(layout)}: {best}"


def shaded(neutral: Color, warmth: float) -> Style:
    """The ground of a place on the scale from cold (0) over neutral to warm (1), and a text that can be read on it."""
    return _shaded(neutral, round(warmth * LEVELS))


@cache
def _shaded(neutral: Color, level: int) -> Style:
    ground = neutral.blend(COLD if 2 * level < LEVELS else WARM, abs(2 * level / LEVELS - 1))
    return Style(ground, text_on(ground))


def legend(layout: PolicyMapLaidOut, *, has_colours: bool = True) -> list[tuple[str, str]]:
    """What colours and signs stand for: some text in pieces, each with its colour or none."""
    differs = f"{DIFFERS} {'unlike the expert' if layout.best_is_experts else 'not the best'}"
    names = [one_line(name) for name in layout.action_names]
    if layout.action is not None:
        warm = names[layout.action]
        cold = names[1 - layout.action] if len(names) == 2 else f"no {warm}"
        if not has_colours:
            return [(f"█ {warm}  (blank) {cold}  {differs}", "")]
        return [("█", WARM.hex), (f" {warm}  ", ""), ("█", COLD.hex), (f" {cold}  {differs}", "")]
    cells = [cell for panel in layout.panels for row in panel.cells for cell in row]
    if any(cell.action is not None for cell in cells):
        return [(f"{one_line(layout.signs[0])} its likeliest move  {differs}", "")]
    pairs = zip(layout.signs, names, strict=True)
    signs = "  ".join(f"{one_line(sign)} {name}" for sign, name in pairs)
    return [(f"{signs}  {differs}", "")]


def _fitted(text: str, width: int) -> str:
    return set_cell_size(one_line(text) if text.strip() else text, width)


def _centred(text: str, width: int) -> str:
    text = one_line(text) if text.strip() == text else text
    return set_cell_size(" " * max(0, (width - len(text)) // 2) + text, width)
