"""The cells of a policy map, drawn line by line, with a cursor of which each move is posted as `Pointed`.

Nothing is shown by colour alone: probabilities are digits, actions characters, what differs from optimal play is ×.
"""

from typing import ClassVar, NamedTuple

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.app import App
from textual.binding import Binding
from textual.events import MouseMove
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style

from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.mapped_policy import (
    BEST,
    MappedCell,
    MappedPolicy,
    Spot,
    best_text,
    best_warmth,
    colours,
    policy_text,
    policy_warmth,
)
from llamagym_tui.screens.widgets.fitted import WIDE
from llamagym_tui.screens.widgets.look import ground_style

GAP = 2
"""Between a panel and the optimal strategy next to it."""
APART = 3
"""Between two panels."""
MOST_LABEL = 12
WALL = "│"
"""Right of a field that has a wall there, in cells with room for it."""
LARGE = 7
"""Width from which cells of the optimal strategy are as wide as the policy's."""


class CellSize(NamedTuple):
    width: int
    height: int


SIZES = (
    CellSize(9, 3),
    CellSize(7, 3),
    CellSize(5, 2),
    CellSize(5, 1),
    CellSize(4, 1),
    CellSize(3, 1),
)
"""From the most to the least preferred."""
SMALLEST = CellSize(2, 1)
"""Where the map stands beside other things: a digit or an arrow, and whether it differs."""


class Place(NamedTuple):
    x: int
    y: int
    label: int
    rows: int
    columns: int
    width: int
    """With the optimal strategy next to the panel."""


class Places(NamedTuple):
    panels: tuple[Place, ...]
    cell: CellSize
    optimal_width: int
    """Width of a cell of the optimal strategy."""
    with_optimal: bool
    """Whether the optimal strategy stands next to the policy."""
    across: int
    """Panels that stand next to each other; the next ones are below them."""

    @property
    def width(self) -> int:
        return max((place.x + place.width for place in self.panels), default=0)

    @property
    def height(self) -> int:
        return max(
            (place.y + 1 + place.rows * self.cell.height for place in self.panels), default=0
        )


def places_for(layout: PolicyMapLaidOut, width: int, height: int) -> Places:
    """The first layout of those preferred that fits; if none does, one that fits in width and scrolls."""
    preferred = [
        _places(layout, size, with_optimal=with_optimal, across=across)
        for with_optimal in (True, False)
        for across in range(len(layout.panels) or 1, 0, -1)
        for size in SIZES
    ]
    fitting = [places for places in preferred if places.width <= width and places.height <= height]
    scrolled = [places for places in preferred if places.width <= width and places.cell.height == 1]
    return next(iter(fitting or scrolled), preferred[-1])


def largest_places(layout: PolicyMapLaidOut, width: int, height: int) -> Places:
    """The policy alone, in the largest cells that fit; if none do, in the smallest."""
    sizes = (*SIZES, SMALLEST)
    found = [
        _places(layout, size, with_optimal=False, across=across)
        for size in sizes
        for across in range(len(layout.panels) or 1, 0, -1)
    ]
    fitting = [places for places in found if places.width <= width and places.height <= height]
    return max(
        fitting, key=lambda places: places.cell.width * places.cell.height, default=found[-1]
    )


def _places(
    layout: PolicyMapLaidOut, field: CellSize, *, with_optimal: bool, across: int
) -> Places:
    most = max(
        (len(cell.best) for panel in layout.panels for row in panel.cells for cell in row),
        default=1,
    )
    least_width = 3 if field.width >= 5 else 2
    optimal_width = field.width if field.width >= LARGE else max(most + 1, least_width)
    panels: list[Place] = []
    x = y = bottom = 0
    for number, panel in enumerate(layout.panels, 1):
        label = min(max(map(len, [panel.title, *panel.rows])), MOST_LABEL) + 1
        rows, columns = len(panel.rows), len(panel.columns)
        width = (
            label + columns * field.width + (GAP + columns * optimal_width if with_optimal else 0)
        )
        panels.append(Place(x, y, label, rows, columns, width))
        x, bottom = x + width + APART, max(bottom, y + 1 + rows * field.height)
        if number % across == 0:
            x, y = 0, bottom
    return Places(tuple(panels), field, optimal_width, with_optimal, across)


class PolicyGrid(ScrollView, can_focus=True):
    HELP = (
        "Each cell is a state. A digit is the probability of the named action in tenths, 10 is certain; a longer "
        "number is in percent. An arrow or letter is the most probable action, with its probability, or alone if it is "
        "certain. × marks a cell in which the most probable action is not optimal. Arrow keys and the mouse move the "
        "cursor."
    )
    COMPONENT_CLASSES: ClassVar[set[str]] = {"map--label"}
    DEFAULT_CSS = (
        "PolicyGrid { background: $background; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; "
        "& > .map--label { color: $aside; } }"
    )
    BINDINGS = [
        Binding("up", "move(-1, 0)", "Up", tooltip="The cell above.", id="map.up", show=False),
        Binding("down", "move(1, 0)", "Down", tooltip="The cell below.", id="map.down", show=False),
        Binding(
            "left",
            "move(0, -1)",
            "Left",
            tooltip="The cell on the left.",
            id="map.left",
            show=False,
        ),
        Binding(
            "right",
            "move(0, 1)",
            "Right",
            tooltip="The cell on the right.",
            id="map.right",
            show=False,
        ),
    ]

    optimal_instead = reactive(False)
    """Whether the optimal strategy is drawn in place of the policy."""

    class Pointed(Message):
        """The cursor moved."""

    class Placed(Message):
        """The cells were laid out."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.policy = MappedPolicy(PolicyMapLaidOut(), None)
        """What is drawn; at first a map without panels."""
        self.cursor = Spot(0, 0, 0)
        self.places = places_for(self.policy.layout, 0, 0)
        """Where the cells are, and whether the optimal strategy is drawn next to the policy."""

    @property
    def pointed(self) -> MappedCell | None:
        return self.policy.cells.get(self.cursor)

    def show(self, policy: MappedPolicy) -> None:
        same = policy.layout is self.policy.layout
        self.policy = policy
        if not same:
            self.cursor = next(iter(policy.cells), self.cursor)
            self._place()
        self.refresh()

    def on_resize(self) -> None:
        self._place()

    def _place(self) -> None:
        room = self.app.size - Size(
            2, 6 if self.app.size.width >= WIDE else 5
        )  # it will have, when it is opened
        self.places = places_for(self.policy.layout, *(self.size or room))
        self.virtual_size = Size(self.places.width, self.places.height)
        self.refresh()
        self.post_message(self.Placed())

    # The cursor

    def point(self, spot: Spot) -> None:
        if spot == self.cursor or spot not in self.policy.cells:
            return
        self.cursor = spot
        self.refresh()
        place, (x, y) = self.places.panels[spot.panel], self._at(spot)
        region = Region(x, y, *self.places.cell)
        # From the first row and column, scroll so far that their labels are seen too.
        if not spot.row:
            region = region.union(Region(x, place.y, 1, 1))
        if not spot.column:
            region = region.union(Region(place.x, y, 1, 1))
        self.scroll_to_region(region, animate=False, force=True, immediate=True)
        self.post_message(self.Pointed())

    def _at(self, spot: Spot) -> Offset:
        """Where a cell of the policy begins."""
        place, cell = self.places.panels[spot.panel], self.places.cell
        return Offset(
            place.x + place.label + spot.column * cell.width, place.y + 1 + spot.row * cell.height
        )

    def action_move(self, rows: int, columns: int) -> None:
        """Move to the nearest cell ahead, of panels in line with this one: first of those in the same row or column."""
        found, across = list[tuple[int, int, Spot]](), self.places.across
        for spot in self.policy.cells:
            x, y = self._at(spot) - self._at(self.cursor)
            ahead, index = x * columns + y * rows, 2 if rows else 1
            aside = abs(spot[index] - self.cursor[index])
            panels = spot.panel, self.cursor.panel
            in_line = len({panel // across if columns else panel % across for panel in panels}) == 1
            if ahead > 0 and in_line:
                found.append((aside, ahead, spot))
        if found:
            self.point(min(found)[2])

    def on_mouse_move(self, event: MouseMove) -> None:
        if spot := event.style.meta.get("spot"):
            self.point(Spot(*spot))

    # Drawing

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        line, at = y + scroll_y, 0
        segments: list[Segment] = []
        for number, place in enumerate(self.places.panels):
            if not place.y <= line <= place.y + place.rows * self.places.cell.height:
                continue
            segments.append(Segment(" " * (place.x - at), self.rich_style))
            segments += (
                self._head(number, place)
                if line == place.y
                else self._row(number, place, line - place.y - 1)
            )
            at = place.x + place.width
        return Strip(segments).crop_extend(scroll_x, scroll_x + self.size.width, self.rich_style)

    def _head(self, number: int, place: Place) -> list[Segment]:
        """Title of a panel and the labels of its columns."""
        panel, width = self.policy.layout.panels[number], self.places.cell.width
        segments = [self._segment(_fitted(panel.title, place.label - 1) + " ", bold=True)]
        for column, label in enumerate(panel.columns):
            here = (self.cursor.panel, self.cursor.column) == (number, column)
            segments.append(self._segment(_centred(label, width), bold=here, aside=not here))
        if self.places.with_optimal:
            title = _centred(
                BEST[self.policy.layout.best_is_experts][0],
                place.columns * self.places.optimal_width,
            )
            segments += [self._segment(" " * GAP), self._segment(title, aside=True)]
        return segments

    def _row(self, number: int, place: Place, line: int) -> list[Segment]:
        """One of the lines of a row of cells; the middle one has the text."""
        cell = self.places.cell
        row, inner = divmod(line, cell.height)
        middle = inner == (cell.height - 1) // 2
        here = (self.cursor.panel, self.cursor.row) == (number, row)
        label = self.policy.layout.panels[number].rows[row] if middle else ""
        segments = [
            self._segment(
                _fitted(label, place.label - 1, right=True) + " ", bold=here, aside=not here
            )
        ]
        spots = [Spot(number, row, column) for column in range(place.columns)]
        segments += [
            self._cell(spot, cell.width, middle=middle, best=self.optimal_instead) for spot in spots
        ]
        if self.places.with_optimal:
            segments.append(self._segment(" " * GAP))
            segments += [
                self._cell(spot, self.places.optimal_width, middle=middle, best=True)
                for spot in spots
            ]
        return segments

    def _cell(self, spot: Spot, width: int, *, middle: bool, best: bool) -> Segment:
        cell, layout = self.policy.cells.get(spot), self.policy.layout
        if cell is None:
            return self._segment(" " * width)
        if best:
            text, warmth = best_text(layout, cell), best_warmth(layout, cell)
        else:
            text, warmth = policy_text(layout, cell, width), policy_warmth(layout, cell)
        style = (
            self.visual_style + cell_style(self.app, cell, warmth) + Style.from_meta({"spot": spot})
        )
        if spot == self.cursor:
            style += Style(reverse=True, bold=True)
        elif cell.cell.sign or cell.agrees is False:
            style += Style(bold=True)
        shown = _centred(text if middle else "", width)
        if cell.cell.has_wall and shown.endswith(" "):
            shown = f"{shown[:-1]}{WALL}"
        return Segment(shown, style.rich_style)

    def _segment(self, text: str, *, bold: bool = False, aside: bool = False) -> Segment:
        style = self.visual_style + Style(bold=bold or None)
        if aside:
            style += self.get_visual_style("map--label", partial=True)
        return Segment(text, style.rich_style)


def cell_style(app: App[object], cell: MappedCell, warmth: float | None) -> Style:
    """The colours of a cell: those of its field, else of what the policy does there."""
    if cell.cell.ground:
        return ground_style(app, cell.cell.ground)
    return colours(app, warmth)


def _fitted(text: str, width: int, *, right: bool = False) -> str:
    text = one_line(text)
    return set_cell_size(text.rjust(width) if right else text, width)


def _centred(text: str, width: int) -> str:
    text = one_line(text) if text.strip() == text else text
    return set_cell_size(" " * max(0, (width - len(text)) // 2) + text, width)
