"""Text fields: keys take effect in their order, and no control character can be pasted."""

from collections.abc import Callable
from typing import Any

from textual.events import Key, Paste
from textual.widget import Widget
from textual.widgets import Input, TextArea

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.literal import pasted


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

    HELP = "The draft. It is saved half a second after a change, and requested from the trainer only by ctrl+s."

    def on_resize(self) -> None:
        """Draw all lines again: Textual wraps them only after it has drawn them."""
        self.refresh()

    async def _on_paste(self, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        if result := self._replace_via_keyboard(pasted(event.text), *self.selection):
            self.move_cursor(result.end_location)
