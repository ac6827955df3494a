"""Lists of lines. A line is made when it comes into view, so a list of any length opens at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding
from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import RenderOptions

MARK = "▌"
"""Stands before the marked line; it shows without colour, too."""
FAR = 10**9
"""More lines than there are."""


class LineView(ScrollView, can_focus=True):
    """A base: so many lines, of which some are in view."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "LineView { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }"

    @property
    def line_width(self) -> int:
        """Cells of a line."""
        return self.scrollable_content_region.width

    def measure(self, count: int) -> None:
        """Note the number of lines. The scrollbar is always there, so this changes no layout."""
        self.set_reactive(LineView.virtual_size, Size(self.line_width, count))
        self.vertical_scrollbar.window_virtual_size = count

    def go_to(self, line: int) -> None:
        """Put a line at the top."""
        self.scroll_to(y=line, animate=False, immediate=True)

    def bring_into_view(self, line: int) -> None:
        """Scroll as little as is needed to see a line."""
        top, height = self.scroll_offset.y, self.size.height
        if not top <= line < top + height:
            self.go_to(line if line < top else line - height + 1)

    def drawn(self, line: Content) -> Strip:
        """A line, cut or filled to the width."""
        width = self.line_width
        line = line.truncate(width, ellipsis=True, pad=True)
        options = RenderOptions(self._get_style, {})
        (strip,) = line.render_strips(width, 1, self.visual_style, options)
        return strip


class Lines(LineView):
    """A list with a cursor."""

    BINDINGS: ClassVar = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("home,g", f"move(-{FAR})", show=False),
        Binding("end,G", f"move({FAR})", show=False),
    ]

    @dataclass
    class Moved(Message):
        """A person moved the cursor."""

        lines: Lines

        @property
        def control(self) -> Lines:
            return self.lines

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.count = 0
        self.cursor = 0
        self._line: Callable[[int], Content] = lambda at: Content()

    def show(self, count: int, line: Callable[[int], Content], cursor: int) -> None:
        """Show a list.

        Args:
            count: of its lines.
            line: makes a line, from its index.
            cursor: the line that the cursor is on from now on; it stays at its height.
        """
        top = self.scroll_offset.y + cursor - self.cursor
        self.count = count
        self.cursor = cursor
        self._line = line
        self.measure(count)
        self.go_to(top)
        self.bring_into_view(cursor)
        self.refresh()

    def on_resize(self) -> None:
        self.measure(self.count)
        self.bring_into_view(self.cursor)

    def action_move(self, by: int) -> None:
        """Move the cursor up or down, as far as there are lines."""
        self.refresh_line(self.cursor)
        self.cursor = max(0, min(self.cursor + by, self.count - 1))
        self.bring_into_view(self.cursor)
        self.refresh_line(self.cursor)
        self.post_message(self.Moved(self))

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def on_click(self, event: Click) -> None:
        if (at := event.get_content_offset(self)) is not None:
            self.action_move(self.scroll_offset.y + at.y - self.cursor)

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        if at >= self.count:
            return self.drawn(Content())
        if at != self.cursor:
            return self.drawn(" " + self._line(at))
        line = Content.styled(MARK, "bold $accent") + self._line(at)
        line = line.truncate(self.line_width, ellipsis=True, pad=True)
        return self.drawn(line.stylize_before("on $selected"))
