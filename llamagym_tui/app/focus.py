"""Focus that survives a terminal that was too small for a while. A part of `LlamaGymApp`.

Textual takes the focus from hidden widgets, and in a terminal below the least size all are, without giving it back:
the keys of a list would be dead after the terminal has grown again.
"""

from functools import partial

from textual.app import App
from textual.events import Resize
from textual.screen import Screen
from textual.widget import Widget

from llamagym_tui.screens.widgets.sizes import is_too_small


class FocusKeeper(App[None]):
    def on_resize(self, event: Resize) -> None:
        if is_too_small(event.size):
            for screen in self.screen_stack:
                if screen.focused is not None:
                    give_back = partial(self._give_back, screen, screen.focused)
                    screen.screen_layout_refresh_signal.subscribe(self, give_back, immediate=True)

    def _give_back(self, screen: Screen[object], widget: Widget, laid_out: object) -> None:
        """Focus the widget again once it is visible, unless another one has the focus by now."""
        if is_too_small(self.size):
            return
        if screen.focused is None and widget.is_attached and not widget.focusable:
            return  # not styled for its new size yet
        screen.screen_layout_refresh_signal.unsubscribe(self)
        if screen.focused is None and widget.is_attached:
            screen.set_focus(widget, scroll_visible=False)
