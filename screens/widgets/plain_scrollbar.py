"""Scroll bars that can be seen without colour: the track is a line of characters.

Textual draws the track as a background colour alone, which NO_COLOR removes.
"""

from typing import Any

from rich.segment import Segment, Segments
from textual._context import active_app
from textual.scrollbar import ScrollBarRender

LINES = {True: "│", False: "─"}
"""Track of a vertical bar, or of a horizontal one."""


class PlainScrollBarRender(ScrollBarRender):
    @classmethod
    def render_bar(cls, *args: Any, **options: Any) -> Segments:
        bar = super().render_bar(*args, **options)
        has_colour = not active_app.get().no_color  # another app of this process
        if has_colour or not options.get("window_size"):  # there is nothing to scroll
            return bar
        line = LINES[options.get("vertical", True)]
        drawn = [
            Segment(line * len(each.text), each.style)
            if each.text.strip(cls.BLANK_GLYPH) == "" and each.style is not None and not each.style.reverse
            else each
            for each in bar.segments
        ]
        return Segments(drawn, new_lines=bar.new_lines)
