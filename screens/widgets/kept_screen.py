"""Screens that are composed once and shown again: one that is composed anew takes some 30 ms more to open."""

from typing import Any

from textual.app import App
from textual.events import ScreenResume

from llamagym_tui.screens.widgets.sizes import Fitted


class KeptScreen(Fitted[None]):
    def __init__(self, of: Any) -> None:
        """A screen of something, not composed yet."""
        super().__init__()
        self._styled_for: object = None
        """The theme and the size of the terminal for which styles were last updated."""

    def on_screen_resume(self, event: ScreenResume) -> None:
        """Have styles updated only where another theme or size may change them: it empties what is kept as painted."""
        look = (self.app.theme_variables, self.app.size)
        event.refresh_styles = look != self._styled_for
        self._styled_for = look

    def reopen(self, of: Any) -> None:
        """Show something else, as if the screen had been opened for the first time."""
        raise NotImplementedError


def open_kept(app: App[Any], kind: type[KeptScreen], of: object) -> None:
    """Open the app's screen of a kind, of something."""
    name = kind.__name__
    if app.is_screen_installed(name):
        screen = app.get_screen(name, kind)
        app.push_screen(screen)
        screen.reopen(of)
    else:
        app.install_screen(kind(of), name)
        app.push_screen(name)
