"""Screens that are laid out once before they are shown, for the present size of the terminal.

Textual lays out a new screen up to three times: without a size, for the size, and with the style classes of that
size. When two sizes are reported at once, by a terminal that does not know its own, it alternates without end.
"""

from __future__ import annotations

from textual.events import Resize
from textual.screen import Screen, ScreenResultType

from llamagym_tui.screens.widgets.look import size_classes


class Fitted(Screen[ScreenResultType]):
    def on_mount(self) -> None:
        self.add_class(*size_classes(self.app.size), update=False)

    def on_resize(self, event: Resize) -> None:
        # `size` of a screen is the terminal's; `outer_size` is the one that it was laid out for.
        fits = event.size == self.outer_size and all(map(self.has_class, size_classes(event.size)))
        if fits or event.size != self.app.size:
            event.prevent_default()
