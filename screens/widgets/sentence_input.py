"""An input of one row without a frame, into which no control characters can be pasted."""

from __future__ import annotations

from textual.events import Paste
from textual.widgets import Input

from llamagym_tui.screens.widgets.literal import one_line


class SentenceInput(Input):
    DEFAULT_CSS = """
    SentenceInput, SentenceInput:focus {
        height: 1;
        border: none;
        padding: 0;
        background: $surface;
    }
    """

    def _on_paste(self, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        self.insert_text_at_cursor(one_line(event.text))
