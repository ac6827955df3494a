"""Episodes of a file as an option list, one line each, with a clickable row of column titles.

`DataTable` has columns of its own, but measures every cell again with each letter of a filter: 1.5 s for 10,000
episodes. Here only lines in view are ever measured.
"""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.demos.rows import COLUMNS, Row
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.screens.widgets.numbers import number

FAULTY, OTHER_PROMPT = "✗", "≠"
SHOWN_OF_TEXT = 200
"""Characters of an observation that a line begins to show, at most."""


def line_text(row: Row) -> str:
    """A row as one line of text, wider than most lists."""
    demo = row.demo
    if demo is None:
        return f"{FAULTY} {row.line:<5,}  {one_line(row.faults[0] if row.faults else 'no demonstration')}"
    first = next(iter(demo.observations), "")
    source, recorded = one_line(demo.source), one_line(demo.recorded_at[:16].replace("T", " "))
    cells = (f"{row.line:,}", number(demo.episode_return), f"{demo.length:,}", source, recorded)
    mark = FAULTY if row.faults else OTHER_PROMPT if row.other_prompt else " "
    line = "".join(f"{cell[: column.width - 1]:<{column.width}}" for cell, column in zip(cells, COLUMNS, strict=True))
    return f"{mark} {line}{one_line(first[:SHOWN_OF_TEXT])}"


def titles_text(by: str, *, descending: bool) -> Content:
    """Titles of the columns with an arrow at the sorted one; a click on a title sorts by it."""
    row = Content("  ")
    for column in COLUMNS:
        arrow = ("▼" if descending else "▲") if column.title == by else ""
        title = f"{column.title}{arrow:<{column.width - len(column.title)}}"
        row += Content(title).stylize(Style.from_meta({"@click": f"screen.sort_by('{column.title}')"}))
    return (row + "first observation").stylize("bold")


class EpisodeLine(Visual):
    """A row that becomes text when it is drawn, so that the list need not measure rows out of view."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        line = Content.styled(line_text(self.row), "$text-error" if self.row.faults else "")
        return line.render_strips(width, height, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return 1


class EpisodeList(OptionList):
    """Posts `OptionHighlighted` when a person moves the cursor, not when `show` does."""

    DEFAULT_CSS = own_styles(__file__)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", "Up", show=False, tooltip="The episode above.", id="episodes.up"),
        Binding("down", "cursor_down", "Down", show=False, tooltip="The episode below.", id="episodes.down"),
    ]
    rows: Sequence[Row] = ()

    def action_cursor_up(self) -> None:
        """One row up; the list does not wrap around."""
        if self.highlighted:
            super().action_cursor_up()

    def action_cursor_down(self) -> None:
        if self.highlighted is None or self.highlighted < self.option_count - 1:
            super().action_cursor_down()

    @property
    def row(self) -> Row | None:
        return self.rows[self.highlighted] if self.rows and self.highlighted is not None else None

    def show(self, rows: Sequence[Row], *, placeholder: str = "") -> None:
        """Show other rows; the cursor stays on its episode, or else at its place."""
        before, at, top = self.row, self.highlighted or 0, self.scroll_offset.y
        same = next((index for index, row in enumerate(rows) if before and row.content == before.content), at)
        self.rows = rows
        with self.prevent(OptionList.OptionHighlighted):
            self.set_options([EpisodeLine(row) for row in rows] or [Option(Content(placeholder), disabled=True)])
            self.scroll_to(y=top, animate=False, immediate=True)
            self.highlighted = min(same, len(rows) - 1) if rows else None
