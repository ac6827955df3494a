"""Screens that fit the terminal, are kept for the next time, or have a field to find in."""

from typing import Any, ClassVar

from textual.app import App
from textual.events import Resize, ScreenResume
from textual.geometry import Size
from textual.screen import Screen, ScreenResultType
from textual.widget import Widget
from textual.widgets import Static

from llamagym_tui.screens.widgets.fields import SentenceInput

MIN_WIDTH = 60
"""Cells."""
MIN_HEIGHT = 16
"""Rows."""
WIDE = 120
"""Cells from which chart and figures stand next to the conversation."""
WIDTHS: list[tuple[int, str]] = [(0, "-too-narrow"), (MIN_WIDTH, "-narrow"), (WIDE, "-wide")]
HEIGHTS: list[tuple[int, str]] = [(0, "-too-short"), (MIN_HEIGHT, "-tall")]
"""Style classes of every screen, by size of the terminal."""


class TooSmall(Static):
    """The message in place of a screen when the terminal is too small for it."""

    DEFAULT_CSS = """
    TooSmall { display: none; width: 1fr; height: 1fr; content-align: center middle; }
    .-too-narrow > *, .-too-short > * { display: none; }
    .-too-narrow > TooSmall, .-too-short > TooSmall { display: block; }
    """
    SCOPED_CSS = False  # it hides what surrounds it

    def __init__(self) -> None:
        super().__init__(f"terminal too small: it needs {MIN_WIDTH} × {MIN_HEIGHT}", markup=False)


def is_too_small(size: Size) -> bool:
    return size.width < MIN_WIDTH or size.height < MIN_HEIGHT


class Fitted(Screen[ScreenResultType]):
    """A screen that is laid out once before it is shown, for the present size of the terminal.

    Textual lays out a new screen up to three times: without a size, for the size, and with the style classes of that
    size. When two sizes are reported at once, by a terminal that does not know its own, it alternates without end.
    """

    def on_mount(self) -> None:
        self.add_class(*size_classes(self.app.size), update=False)

    def on_resize(self, event: Resize) -> None:
        # `size` of a screen is the terminal's; `outer_size` is the one that it was laid out for.
        fits = event.size == self.outer_size and all(map(self.has_class, size_classes(event.size)))
        if fits or event.size != self.app.size:
            event.prevent_default()


def size_classes(size: Size) -> list[str]:
    width = max(step for step in WIDTHS if step[0] <= size.width)
    height = max(step for step in HEIGHTS if step[0] <= size.height)
    return [width[1], height[1]]


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


class Finding(Fitted[None]):
    FOUND_IN: ClassVar[type[Widget]]
    """What has the focus while the field is closed."""

    def action_find(self) -> None:
        self.add_class("-finding")
        self.query_one(SentenceInput).focus()

    def action_back(self) -> None:
        if not self.has_class("-finding"):
            self.dismiss()
        else:
            self.close_field()

    def close_field(self) -> None:
        """Show all of the list again, without the field."""
        self.remove_class("-finding")
        self.query_one(SentenceInput).value = ""
        self.query_one(self.FOUND_IN).focus()
