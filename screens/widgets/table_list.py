"""A table as an option list: a line for each row, under titles of which a click sorts by their column.

`DataTable` measures every cell again whenever its rows change: 1.5 s for 10,000 rows. Here a line is made when it comes
into view, for the present width; columns for which there is no room are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from textual import on
from textual.content import Content
from textual.css.styles import RulesMap
from textual.events import Click
from textual.message import Message
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.look import ASIDE, own_styles
from llamagym_tui.screens.widgets.numbers import spark

RowT = TypeVar("RowT")
GAP = 2
"""Cells between two columns."""
MARKS = 2
"""Cells before the first column."""


class Column(NamedTuple, Generic[RowT]):
    title: str
    width: int
    """Cells; 0: all that the other columns leave."""
    text: Callable[[RowT], str | Sequence[float]]
    """Numbers are drawn as a curve."""
    order: Callable[[RowT], Any] | None = None
    """By what it sorts. None: not at all."""
    falls: bool = False
    """Whether the largest comes first."""
    needs: int = 0
    """Cells that the table has at least where the column is shown."""
    right: bool = False
    style: str = ""


class TableList(OptionList, Generic[RowT]):
    """Rows in the order of a column; the cursor stays on its row when they change, or else at its place."""

    DEFAULT_CSS = own_styles(__file__)
    COLUMNS: ClassVar[Sequence[Column[Any]]]

    class Changed(Message):
        """Rows, their order, marks or the cursor are others now."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.rows: list[RowT] = []
        """As they are shown."""
        self._given: list[RowT] = []
        self._empty = ""
        self.sorted_by = self.COLUMNS[0].title
        self.backwards = False
        self.heading = TableHeading(self)
        """To be composed above the list."""

    @property
    def chosen(self) -> RowT | None:
        return self.rows[self.highlighted] if self.rows and self.highlighted is not None else None

    def show(self, rows: Iterable[RowT], *, empty: str = "") -> None:
        """Show other rows, or a text in place of none; equal ones of a column stay in the order in which they come."""
        before, at, top = self.chosen, self.highlighted or 0, self.scroll_offset.y
        self._given = list(rows)
        self._empty = empty
        self.rows = self.ordered(self._given)
        same = next(
            (
                at
                for at, row in enumerate(self.rows)
                if before and self.key(row) == self.key(before)
            ),
            at,
        )
        nothing = [Option(Content(empty), disabled=True)] if empty else []
        with self.prevent(OptionList.OptionHighlighted):
            self.set_options([Option(_Line(self, row)) for row in self.rows] or nothing)
            self.scroll_to(y=top, animate=False, immediate=True)
            self.highlighted = min(same, len(self.rows) - 1) if self.rows else None
        self.heading.refresh()
        self.post_message(self.Changed())

    def show_again(self) -> None:
        self.show(self._given, empty=self._empty)

    def draw_again(self) -> None:
        """Draw the same rows, of which something else is known now."""
        self._clear_caches()
        self.refresh()

    def key(self, row: RowT) -> object:
        """What a row has in common with its later versions."""
        return row

    def ordered(self, rows: list[RowT]) -> list[RowT]:
        column = next(column for column in self.COLUMNS if column.title == self.sorted_by)
        assert column.order is not None, "its title cannot be clicked"
        return sorted(rows, key=column.order, reverse=column.falls != self.backwards)

    def sort(self, by: str) -> None:
        """Sort by a column; by the one that is sorted already, the other way round."""
        self.backwards = by == self.sorted_by and not self.backwards
        self.sorted_by = by
        self.show_again()

    def action_sort(self) -> None:
        """Sort by the next column."""
        titles = [column.title for column in self.columns_at(self.size.width) if column.order]
        index = titles.index(self.sorted_by) if self.sorted_by in titles else -1
        self.sort(titles[(index + 1) % len(titles)])

    @classmethod
    def columns_at(cls, width: int) -> list[Column[RowT]]:
        """The columns that a table of some cells has room for."""
        return [column for column in cls.COLUMNS if width >= column.needs]

    def action_cursor_up(self) -> None:
        """One row up; the list does not wrap around."""
        if self.highlighted:
            super().action_cursor_up()

    def action_cursor_down(self) -> None:
        if self.highlighted is None or self.highlighted < self.option_count - 1:
            super().action_cursor_down()

    @on(OptionList.OptionHighlighted)
    def _cursor_moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.post_message(self.Changed())

    # Lines

    def mark_of(self, row: RowT) -> str:
        return ""

    def cell(self, row: RowT, column: Column[RowT], width: int) -> Content:
        """What stands in a column; `width` is its own, or what the others leave for it."""
        text = column.text(row)
        return Content.styled(
            one_line(text) if isinstance(text, str) else spark(text, width), column.style
        )

    def line(self, row: RowT, width: int) -> Content:
        mark = Content.styled(f"{self.mark_of(row):<{MARKS}}", "bold $accent")
        return mark + self._laid_out(width, lambda column, cells: self.cell(row, column, cells))

    def titles(self) -> Content:
        """The titles of the columns, the sorted one with an arrow."""

        def title(column: Column[RowT], cells: int) -> Content:
            arrow = ""
            if column.title == self.sorted_by:
                arrow = "▼" if column.falls != self.backwards else "▲"
            shown = Content.styled(column.title + arrow, "bold" if arrow else ASIDE)
            return shown.stylize(Style.from_meta({"sort": column.title})) if column.order else shown

        return Content(" " * MARKS) + self._laid_out(self.scrollable_content_region.width, title)

    def _laid_out(self, width: int, made: Callable[[Column[RowT], int], Content]) -> Content:
        columns = self.columns_at(width)
        rest = max(
            4, width - MARKS - sum(column.width for column in columns) - GAP * (len(columns) - 1)
        )
        cells = []
        for column in columns:
            room = column.width or rest
            cut = made(column, room).truncate(room, ellipsis=True)
            fill = room - cut.cell_length
            cells.append(cut.pad_left(fill) if column.right else cut.pad_right(fill))
        return Content(" " * GAP).join(cells)


class TableHeading(Widget):
    """The titles above a list."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "TableHeading { height: 1; text-wrap: nowrap; }"

    def __init__(self, table: TableList[Any]) -> None:
        super().__init__()
        self._table = table

    def render(self) -> Content:
        return self._table.titles()

    def on_click(self, event: Click) -> None:
        if column := event.style.meta.get("sort"):
            self._table.sort(column)


class _Line(Visual):
    """A row that becomes text when it is drawn."""

    def __init__(self, table: TableList[Any], row: object) -> None:
        self._table = table
        self._row = row

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        return self._table.line(self._row, width).render_strips(width, height, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return 1
