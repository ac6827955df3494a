"""Literal text for Textual: no markup, no control characters."""

import re
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from llamagym_tui.protocol.literal import REPLACEMENT, UNSAFE, literal


def pasted(text: str) -> str:
    """The literal text of a paste; some terminals end its lines with carriage returns."""
    return literal("\n".join(text.replace("\r\n", "\n").split("\r")))


class LiteralLines(LineFilter):
    """Cleans each line of each widget last: no control character and no link reaches the terminal.

    Texts are made literal at their source; this filter drops what was missed there and keeps the width.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(text.isprintable() and not (style and style.link) for text, style, _ in segments):
            return segments
        return [
            Segment(
                UNSAFE.sub(_as_wide, text.translate(LINE_ENDS)),
                style.update_link(None) if style else None,
            )
            for text, style, _ in segments
        ]


LINE_ENDS: Final = str.maketrans("", "", "\n\t")


def _as_wide(unsafe: re.Match[str]) -> str:
    return REPLACEMENT * cell_len(unsafe[0])
