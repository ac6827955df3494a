"""Where the panels of a policy map stand for a size of the screen, and how large their cells are.

The optimal strategy stands next to each panel where there is room. Sizes are in cells of the terminal.
"""

from typing import NamedTuple

from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.screens.policy_map.mapped_policy import Spot

GAP = 2
"""Between a panel and the optimal strategy next to it."""
APART = 3
"""Between two panels."""
MOST_LABEL = 12
LARGE = 7
"""Width from which cells of the optimal strategy are as wide as the policy's."""


class CellSize(NamedTuple):
    width: int
    height: int


SIZES = (CellSize(9, 3), CellSize(7, 3), CellSize(5, 2), CellSize(5, 1), CellSize(4, 1), CellSize(3, 1))
"""From the most to the least preferred."""


class Place(NamedTuple):
    x: int
    y: int
    label: int
    rows: int
    columns: int


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
        return max((place.x + self.width_of(place) for place in self.panels), default=0)

    @property
    def height(self) -> int:
        return max((place.y + 1 + place.rows * self.cell.height for place in self.panels), default=0)

    def width_of(self, place: Place) -> int:
        """Width of a panel, with the optimal strategy next to it."""
        extra = GAP + place.columns * self.optimal_width if self.with_optimal else 0
        return place.label + place.columns * self.cell.width + extra

    def spot_at(self, x: int, y: int) -> Spot | None:
        """The cell at a position, of the policy or of the optimal strategy next to it."""
        for number, place in enumerate(self.panels):
            row, left = (y - place.y - 1) // self.cell.height, x - place.x - place.label
            if not 0 <= row < place.rows or left < 0:
                continue
            if left < place.columns * self.cell.width:
                return Spot(number, row, left // self.cell.width)
            right = left - place.columns * self.cell.width - GAP
            if self.with_optimal and 0 <= right < place.columns * self.optimal_width:
                return Spot(number, row, right // self.optimal_width)
        return None


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


def _places(layout: PolicyMapLaidOut, field: CellSize, *, with_optimal: bool, across: int) -> Places:
    most = max((len(cell.best) for panel in layout.panels for row in panel.cells for cell in row), default=1)
    optimal_width = field.width if field.width >= LARGE else max(most + 1, 3 if field.width >= 5 else 2)
    panels: list[Place] = []
    made = Places((), field, optimal_width, with_optimal, across)
    x = y = 0
    for number, panel in enumerate(layout.panels, 1):
        label = min(max(map(len, [panel.title, *panel.rows])), MOST_LABEL) + 1
        place = Place(x, y, label, len(panel.rows), len(panel.columns))
        panels.append(place)
        x += made.width_of(place) + APART
        if number % across == 0:
            x, y = 0, made._replace(panels=tuple(panels)).height
    return made._replace(panels=tuple(panels))
