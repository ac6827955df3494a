"""Episodes of a file, a line each, with a cursor: draws only the lines in view, however long the file is.

A click on a column's title sorts by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from llamagym_tui.screens.demos.book import Row, SortKey
from llamagym_tui.screens.widgets.literal import one_line
from llamagym_tui.screens.widgets.numbers import number

FAULTY = "✗"


class Column(NamedTuple):
    """A column of the list."""

    title: str
    width: int
    """Cells, the gap after it included."""
    sort: SortKey


COLUMNS = (
    Column("line", 7, "line"),
    Column("return", 9, "return"),
    Column("turns", 7, "turns"),
    Column("source", 12, "source"),
    Column("recorded", 18, "time"),
)
SHOWN_OF_TEXT = 200
"""Characters of an observation that a line begins to show, at most."""


def line_text(row: Row) -> str:
    """A row as one line of text, wider than most lists."""
    demo = row.demo
    if demo is None:
        return f"{FAULTY} {row.line:<5,}  {one_line(row.faults[0] if row.faults else 'no demonstration')}"
    first = next((message["content"] for message in demo.messages if message["role"] == "user"), "")
    cells = (
        f"{row.line:,}",
        number(demo.episode_return),
        f"{demo.length:,}",
        one_line(demo.source),
        one_line(demo.recorded_at[:16].replace("T", " ")),
    )
    mark = FAULTY if row.faults else " "
    line = "".join(f"{cell[: column.width - 1]:<{column.width}}" for cell, column in zip(cells, COLUMNS, strict=True))
    return f"{mark} {line}{one_line(first[:SHOWN_OF_TEXT])}"


class EpisodeTitles(Widget):
    """Titles of the columns, the one that is sorted by marked."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    EpisodeTitles { height: 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    @dataclass
    class SortAsked(Message):
        """A title was clicked."""

        by: SortKey

    def __init__(self) -> None:
        """Titles; sorted by line."""
        super().__init__()
        self._by: SortKey = "line"
        self._descending = False

    def show(self, by: SortKey, *, descending: bool) -> None:
        """Mark another order."""
        self._by, self._descending = by, descending
        self.refresh()

    def render(self) -> Content:
        """One row."""
        row = Content("  ")
        for column in COLUMNS:
            arrow = ("▼" if self._descending else "▲") if column.sort == self._by else ""
            row += Content.styled(f"{column.title}{arrow:<{column.width - len(column.title)}}", "bold")
        return row + Content.styled("first observation", "bold")

    def on_click(self, event: Click) -> None:
        """Sort by the column under the pointer."""
        at = event.x - 2
        for column in COLUMNS:
            if 0 <= at < column.width:
                self.post_message(self.SortAsked(column.sort))
                return
            at -= column.width


class EpisodeList(ScrollView, can_focus=True):
    """Rows with a cursor."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"episodes--line", "episodes--cursor", "episodes--faulty"}
    DEFAULT_CSS = """
    EpisodeList {
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        & > .episodes--line { color: $foreground; }
        & > .episodes--faulty { color: $text-error; }
        & > .episodes--cursor { background: $primary 25%; text-style: bold; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False, tooltip="The episode above.", id="episodes.up"),
        Binding("down", "move(1)", "Down", show=False, tooltip="The episode below.", id="episodes.down"),
        Binding("pageup", "page(-1)", "Page up", show=False, tooltip="A page up.", id="episodes.page_up"),
        Binding("pagedown", "page(1)", "Page down", show=False, tooltip="A page down.", id="episodes.page_down"),
        Binding("home", "go(0)", "First", show=False, tooltip="The first episode.", id="episodes.first"),
        Binding("end", "go(-1)", "Last", show=False, tooltip="The last episode.", id="episodes.last"),
    ]

    class Moved(Message):
        """Another row is under the cursor, or none."""

    def __init__(self, *, id: str | None = None) -> None:
        """An empty list."""
        super().__init__(id=id)
        self._rows: Sequence[Row] = ()
        self._cursor = 0
        self._placeholder = ""

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        return self._rows[self._cursor] if self._rows else None

    def show(self, rows: Sequence[Row], *, placeholder: str = "") -> None:
        """Show other rows; the cursor stays at its episode, or at its place."""
        before = self.row
        self._rows, self._placeholder = rows, placeholder
        same = next((index for index, row in enumerate(rows) if before and row.content == before.content), None)
        self._cursor = max(0, min(self._cursor if same is None else same, len(rows) - 1))
        self.virtual_size = Size(self.scrollable_content_region.width, len(rows))
        self._follow_cursor()
        self.refresh()
        self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self._go(self._cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by pages."""
        self._go(self._cursor + by * max(1, self.size.height - 1))

    def action_go(self, to: int) -> None:
        """Move the cursor to a row; -1: the last."""
        self._go(len(self._rows) - 1 if to < 0 else to)

    def on_click(self, event: Click) -> None:
        """Move the cursor to the row under the pointer."""
        self._go(event.y + self.scroll_offset.y)

    def _go(self, to: int) -> None:
        to = max(0, min(to, len(self._rows) - 1))
        if to != self._cursor:
            self._cursor = to
            self._follow_cursor()
            self.refresh()
            self.post_message(self.Moved())

    def _follow_cursor(self) -> None:
        self.scroll_to_region(Region(0, self._cursor, 1, 1), animate=False, immediate=True)

    def render_line(self, y: int) -> Strip:
        """The strip at a row of the widget."""
        width = self.scrollable_content_region.width
        base = self.visual_style
        index = y + self.scroll_offset.y
        if not self._rows and y == 0:
            line = Content.styled(self._placeholder, "$foreground 60%").truncate(width, ellipsis=True)
        elif index < len(self._rows):
            row = self._rows[index]
            names = ["faulty" if row.faults else "line", *(["cursor"] if index == self._cursor else [])]
            line = Content(line_text(row)).truncate(width, ellipsis=True, pad=True)
            for name in names:
                line = line.stylize(self.get_visual_style(f"episodes--{name}", partial=True))
        else:
            return Strip.blank(width, base.rich_style)
        segments = [Segment(text, style.rich_style) for text, style in line.render(base, end="")]
        return Strip(segments, line.cell_length).adjust_cell_length(width, base.rich_style)
