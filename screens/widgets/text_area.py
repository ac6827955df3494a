"""A text area for a draft."""

from textual.events import Paste
from textual.widgets import TextArea

from llamagym_tui.screens.widgets.keys_in_order import KeysInOrder
from llamagym_tui.screens.widgets.literal import pasted


class DraftArea(TextArea, KeysInOrder):
    """A text area into which no control characters can be pasted."""

    HELP = "The draft. It is saved half a second after a change, and requested from the trainer only by ctrl+s."

    def on_resize(self) -> None:
        """Draw all lines again: Textual wraps them after it has drawn them for the new size."""
        self.refresh()

    async def _on_paste(self, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        if result := self._replace_via_keyboard(pasted(event.text), *self.selection):
            self.move_cursor(result.end_location)
