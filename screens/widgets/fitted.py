"""Screens that fit the terminal, and the message in a terminal that is too small."""

from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen, ScreenResultType
from textual.widgets import Static

MIN_WIDTH = 60
"""Cells."""
MIN_HEIGHT = 16
"""Rows."""
WIDE = 120
"""Least number of columns for chart and figures beside the conversation."""
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


class Fitted(Screen[ScreenResultType]):
    """A screen that is laid out once, for the current size of the terminal, before it is shown.

    Textual lays out a new screen up to three times. A terminal that reports two sizes at once makes it alternate for
    ever.
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
