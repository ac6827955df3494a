"""A list of lines with a cursor. A line is made when it comes into view, so a list of any length opens at once."""

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

from llamagym_tui.screens.conversation.view import MARK

FAR = 10**9
"""More lines than there are."""


class Lines(ScrollView, can_focus=True):
    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Lines { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; background: $background; }
    """
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
            line: makes a line, from its index; it is truncated.
            cursor: the line that the cursor is on from now on; it stays at its height.
        """
        top = self.scroll_offset.y + cursor - self.cursor
        self.count = count
        self.cursor = cursor
        self._line = line
        self._measure()
        self._scroll(top)
        self._bring_into_view()
        self.refresh()

    @property
    def width(self) -> int:
        """Cells of a line, beside the mark."""
        return max(1, self.scrollable_content_region.width - len(MARK))

    def _measure(self) -> None:
        """Note the number of lines. The scrollbar is always there, so this changes no layout."""
        self.set_reactive(Lines.virtual_size, Size(self.width, self.count))
        self.vertical_scrollbar.window_virtual_size = self.count

    def on_resize(self) -> None:
        self._measure()
        self._bring_into_view()

    def _scroll(self, top: int) -> None:
        self.scroll_to(y=top, animate=False, immediate=True)

    def _bring_into_view(self) -> None:
        last = self.cursor - max(self.size.height, 1) + 1
        self._scroll(max(last, min(self.scroll_offset.y, self.cursor)))

    def action_move(self, by: int) -> None:
        """Move the cursor up or down, as far as there are lines."""
        self.refresh_line(self.cursor)
        self.cursor = max(0, min(self.cursor + by, self.count - 1))
        self._bring_into_view()
        self.refresh_line(self.cursor)
        self.post_message(self.Moved(self))

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def on_click(self, event: Click) -> None:
        self.action_move(self.scroll_offset.y + event.y - self.cursor)

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        is_marked = at == self.cursor
        line = Content.styled(MARK if is_marked else " ", "bold $accent")
        if at < self.count:
            line = (line + self._line(at)).truncate(self.width + 1, ellipsis=True, pad=True)
        if is_marked:
            line = line.stylize_before("on $selected")
        options = RenderOptions(self._get_style, {})
        return line.render_strips(self.width + 1, 1, self.visual_style, options)[0]
