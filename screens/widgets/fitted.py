"""A screen that is laid out once before it is seen, for the size of the terminal that is there.

Textual lays a new screen out, then for the size that this gave once more, and a third time with the style classes of
that size. Of two sizes that are told at once, as where a terminal does not know its own, it takes turns without end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.events import Resize

from llamagym_tui.screens.widgets.look import size_classes

if TYPE_CHECKING:
    from textual.screen import Screen

    Base = Screen[object]
else:
    Base = object


class Fitted(Base):
    """A mixin of screens."""

    def on_mount(self) -> None:
        self.add_class(*size_classes(self.app.size), update=False)

    def on_resize(self, event: Resize) -> None:
        # `size` of a screen is the terminal's; `outer_size` is the one that it was laid out for.
        fits = event.size == self.outer_size and all(map(self.has_class, size_classes(event.size)))
        if fits or event.size != self.app.size:
            event.prevent_default()
