"""Inputs into which no control characters can be pasted; the lines of a paste become words of one line."""

from __future__ import annotations

from textual.events import Paste
from textual.widgets import Input

from llamagym_tui.protocol.literal import one_line


class OneLineInput(Input):
    def _on_paste(self, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        self.replace(one_line(event.text), *self.selection)


class SentenceInput(OneLineInput):
    DEFAULT_CSS = """
    SentenceInput, SentenceInput:focus {
        height: 1;
        border: none;
        padding: 0;
        background: $surface;
    }
    """
