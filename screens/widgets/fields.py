"""Text fields whose keys take effect in their order, and literal text: no markup, no control characters."""

import re
from collections.abc import Callable
from typing import Any, Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.events import Key, Paste
from textual.filter import LineFilter
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from llamagym_tui.protocol.literal import REPLACEMENT, UNSAFE, literal, one_line


class Words(Static):
    """A text without markup."""

    def __init__(self, text: VisualType = "", **options: Any) -> None:
        super().__init__(text, markup=False, **options)


class KeysInOrder(Widget):
    """A second base of every text field, after Textual's own, which takes the letters."""

    async def on_key(self, event: Key) -> None:
        """Run the action of a key before the next key is handled."""
        if await self.app._check_bindings(event.key):
            event.stop()
            event.prevent_default()


class OneLineInput(Input, KeysInOrder):
    def __init__(
        self, value: str = "", *, may_submit: Callable[[], bool] = lambda: True, **options: Any
    ) -> None:
        """A field on which enter does something only while `may_submit()`."""
        super().__init__(value, **options)
        self._may_submit = may_submit

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return (
            super().check_action(action, parameters)
            if action != "submit" or self._may_submit()
            else None
        )

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


class DraftArea(TextArea, KeysInOrder):
    """A text area into which no control characters can be pasted."""

    HELP = "The draft. It is saved at each change, and requested from the trainer only by ctrl+s."

    def on_resize(self) -> None:
        """Draw all lines again: Textual wraps them only after it has drawn them."""
        self.refresh()

    async def _on_paste(self, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        if result := self._replace_via_keyboard(pasted(event.text), *self.selection):
            self.move_cursor(result.end_location)


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
