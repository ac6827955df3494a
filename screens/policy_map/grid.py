"""The fields of a policy map, drawn line by line, with a cursor.

A heat map has the probability in digits, arrows are characters, and a field that differs from the best strategy has
a × of its own: nothing is told by colour alone. What the cursor is on, whoever moved it, is told by `Pointed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.events import MouseMove, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style

from llamagym_tui.screens.policy_map.cell_text import best_text, best_warmth, colours, policy_text, policy_warmth
from llamagym_tui.screens.policy_map.grid_layout import GAP, Place, Places, places_for
from llamagym_tui.screens.policy_map.mapped_policy import MappedCell, MappedPolicy, Spot
from llamagym_tui.screens.widgets.literal import one_line


class PolicyGrid(ScrollView, can_focus=True):
    HELP = (
        "Each field is a state. A digit is the probability of the named action in tenths, a number in percent; where "
        "arrows or letters are shown, they are the most probable action and its probability. × marks a field in which "
        "the most probable action is not the best. Arrow keys and the mouse move the cursor."
    )
    DEFAULT_CSS = """
    PolicyGrid { background: $background; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1, 0)", "Up", show=False, tooltip="The field above.", id="map.up"),
        Binding("down", "move(1, 0)", "Down", show=False, tooltip="The field below.", id="map.down"),
        Binding("left", "move(0, -1)", "Left", show=False, tooltip="The field on the left.", id="map.left"),
        Binding("right", "move(0, 1)", "Right", show=False, tooltip="The field on the right.", id="map.right"),
        Binding("tab", "next_panel", "Next panel", show=False, tooltip="The next panel.", id="map.panel"),
    ]

    @dataclass
    class Pointed(Message):
        """The cursor moved."""

        spot: Spot

    class Placed(Message):
        """The cells were laid out."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.policy: MappedPolicy | None = None
        self.cursor: Spot | None = None
        self.best_instead = False
        """Whether the best strategy is shown in place of the policy."""
        self._places: Places | None = None

    @property
    def beside(self) -> bool:
        """Whether the optimal strategy is drawn next to the policy."""
        return self._places is not None and self._places.beside

    @property
    def pointed(self) -> MappedCell | None:
        return self.policy.cells.get(self.cursor) if self.policy is not None and self.cursor is not None else None

    def show(self, policy: MappedPolicy) -> None:
        same = self.policy is not None and self.policy.layout is policy.layout
        self.policy = policy
        if not same:
            self.cursor = next(iter(policy.cells), None)
            self._place()
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        self._place()

    def _place(self) -> None:
        if self.policy is None:
            return
        width, height = self.size
        self._places = places_for(self.policy.layout, width, height)
        self.virtual_size = Size(self._places.width, self._places.height)
        self.refresh()
        self.post_message(self.Placed())

    def swap(self) -> None:
        self.best_instead = not self.best_instead
        self.refresh()

    # The cursor

    def point(self, spot: Spot) -> None:
        if self.policy is None or spot == self.cursor or spot not in self.policy.cells:
            return
        self.cursor = spot
        self.refresh()
        if self._places is not None:
            place, field = self._places.panels[spot.panel], self._places.field
            x, y = place.x + place.label + spot.column * field.width, place.y + 1 + spot.row * field.height
            # The row's and the column's label are to be seen, too, where they are near.
            region = Region(x, y, field.width, field.height)
            if not spot.row:
                region = region.union(Region(x, place.y, 1, 1))
            if not spot.column:
                region = region.union(Region(place.x, y, 1, 1))
            self.scroll_to_region(region, animate=False, force=True, immediate=True)
        self.post_message(self.Pointed(spot))

    def action_move(self, rows: int, columns: int) -> None:
        """Move to the next cell that is not empty; at the edge of a panel, to the next panel."""
        if self.policy is None or self.cursor is None or self._places is None:
            return
        number, row, column = self.cursor
        while True:
            row, column = row + rows, column + columns
            place = self._places.panels[number]
            if not (0 <= row < place.rows and 0 <= column < place.columns):
                break
            if (spot := Spot(number, row, column)) in self.policy.cells:
                self.point(spot)
                return
        step = columns if self._places.across else rows
        if step and 0 <= number + step < len(self._places.panels):
            self._enter(number + step, row, column, from_start=step > 0)

    def _enter(self, number: int, row: int, column: int, *, from_start: bool) -> None:
        """Enter a panel at the cell that is nearest to a row and column of the one before."""
        assert self._places is not None and self.policy is not None
        if self._places.across:
            column = 0 if from_start else self._places.panels[number].columns - 1
        else:
            row = 0 if from_start else self._places.panels[number].rows - 1
        spots = [spot for spot in self.policy.cells if spot.panel == number]
        if spots:
            self.point(min(spots, key=lambda spot: abs(spot.row - row) + abs(spot.column - column)))

    def action_next_panel(self) -> None:
        if self.cursor is not None and self._places is not None:
            number = (self.cursor.panel + 1) % len(self._places.panels)
            self._enter(number, self.cursor.row, self.cursor.column, from_start=True)

    def on_mouse_move(self, event: MouseMove) -> None:
        if self._places is not None:
            x, y = self.scroll_offset
            if (spot := self._places.spot_at(event.x + x, event.y + y)) is not None:
                self.point(spot)

    # Drawing

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        line = self._line(y + scroll_y)
        return Strip(line).crop_extend(scroll_x, scroll_x + self.size.width, self.rich_style)

    def _line(self, y: int) -> list[Segment]:
        segments: list[Segment] = []
        if self.policy is None or self._places is None:
            return segments
        at = 0
        for number, place in enumerate(self._places.panels):
            if not place.y <= y <= place.y + place.rows * self._places.field.height:
                continue
            segments.append(Segment(" " * (place.x - at), self.rich_style))
            segments += self._head(number, place) if y == place.y else self._row(number, place, y - place.y - 1)
            at = place.x + self._places.width_of(place)
        return segments

    def _head(self, number: int, place: Place) -> list[Segment]:
        assert self.policy is not None and self._places is not None
        panel, width = self.policy.layout.panels[number], self._places.field.width
        segments = [self._segment(_fitted(panel.title, place.label - 1) + " ", bold=True)]
        for column, label in enumerate(panel.columns):
            here = self.cursor is not None and (self.cursor.panel, self.cursor.column) == (number, column)
            segments.append(self._segment(_centred(label, width), bold=here, aside=not here))
        if self._places.beside:
            segments.append(self._segment(" " * GAP))
            segments.append(self._segment(_centred("optimal", place.columns * self._places.best_width), aside=True))
        return segments

    def _row(self, number: int, place: Place, line: int) -> list[Segment]:
        assert self.policy is not None and self._places is not None
        panel, field = self.policy.layout.panels[number], self._places.field
        row, inner = divmod(line, field.height)
        middle = inner == (field.height - 1) // 2
        here = self.cursor is not None and (self.cursor.panel, self.cursor.row) == (number, row)
        label = panel.rows[row] if middle else ""
        segments = [self._segment(_fitted(label, place.label - 1, right=True) + " ", bold=here, aside=not here)]
        spots = [Spot(number, row, column) for column in range(place.columns)]
        segments += [self._field(spot, field.width, middle=middle, best=self.best_instead) for spot in spots]
        if self._places.beside:
            segments.append(self._segment(" " * GAP))
            segments += [self._field(spot, self._places.best_width, middle=middle, best=True) for spot in spots]
        return segments

    def _field(self, spot: Spot, width: int, *, middle: bool, best: bool) -> Segment:
        assert self.policy is not None
        cell = self.policy.cells.get(spot)
        if cell is None:
            return self._segment(" " * width)
        layout = self.policy.layout
        text = (best_text(layout, cell) if best else policy_text(layout, cell, width)) if middle else ""
        warmth = best_warmth(layout, cell) if best else policy_warmth(layout, cell)
        style = self.visual_style + colours(self.app, warmth)
        if spot == self.cursor:
            style += Style(reverse=True, bold=True)
        elif cell.cell.sign or cell.agrees is False:
            style += Style(bold=True)
        return Segment(_centred(text, width), style.rich_style)

    def _segment(self, text: str, *, bold: bool = False, aside: bool = False) -> Segment:
        style = self.visual_style + Style(bold=bold or None, dim=aside or None)
        return Segment(text, style.rich_style)


def _fitted(text: str, width: int, *, right: bool = False) -> str:
    text = one_line(text)
    return set_cell_size(text.rjust(width) if right else text, width)


def _centred(text: str, width: int) -> str:
    text = one_line(text) if text.strip() == text else text
    return set_cell_size(" " * max(0, (width - len(text)) // 2) + text, width)
