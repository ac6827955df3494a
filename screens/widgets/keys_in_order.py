"""Text fields in which keys take effect in the order in which they were pressed.

A field of Textual's takes a letter where it receives it, but passes on a key that has a binding, such as backspace: the
app runs its action later, and letters that were pressed after it overtake it.
"""

from textual.events import Key
from textual.widget import Widget


class KeysInOrder(Widget):
    """A second base of every text field, after Textual's own, which takes the letters."""

    async def on_key(self, event: Key) -> None:
        """Run the action of a key here, before the next key is looked at."""
        if await self.app._check_bindings(event.key):
            event.stop()
            event.prevent_default()
