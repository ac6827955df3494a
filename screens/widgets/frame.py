"""What all screens share: they fit the terminal, end in the row of keys, and may be about a run.

A screen asks the trainer for something by a `CommandAsked`; the app alone records requests and sends them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen, ScreenResultType

from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.state.run import RunState

MIN_WIDTH = 60
"""Cells."""
MIN_HEIGHT = 16
"""Rows."""
TWO_COLUMNS = 80
"""Least number of columns for two panes beside each other."""
WIDE = 120
"""Least number of columns for a list beside what is chosen in it."""
WIDTHS: list[tuple[int, str]] = [
    (0, "-too-narrow"),
    (MIN_WIDTH, "-narrow"),
    (TWO_COLUMNS, "-two-columns"),
    (WIDE, "-wide"),
]
HEIGHTS: list[tuple[int, str]] = [(0, "-too-short"), (MIN_HEIGHT, "-tall")]
"""Style classes of every screen, by size of the terminal."""
HELP_KEY = Binding(
    "question_mark", "app.help", "Help", tooltip="What the keys and figures mean.", id="help"
)


@dataclass
class CommandAsked(Message):
    """A request to the trainer; the app drops it while the same request is pending."""

    command: AnyCommand | Callable[[RunState], AnyCommand]
    """The command, or a function that makes it from the state when the app takes the request: two quick presses of `]`
    watch two environments further."""


class TooSmall(Words):
    """The message in place of a screen when the terminal is too small for it."""

    DEFAULT_CSS = """
    TooSmall { display: none; width: 1fr; height: 1fr; content-align: center middle; }
    .-too-narrow > *, .-too-short > * { display: none; }
    .-too-narrow > TooSmall, .-too-short > TooSmall { display: block; }
    """
    SCOPED_CSS = False  # it hides what surrounds it

    def __init__(self) -> None:
        super().__init__(f"terminal too small: it needs {MIN_WIDTH} × {MIN_HEIGHT}")


class Fitted(Screen[ScreenResultType]):
    """A screen that is laid out once, for the current size of the terminal, before it is shown.

    Textual lays out a new screen up to three times. A terminal that reports two sizes at once makes it alternate for
    ever.
    """

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield from self.body()
        yield KeyBar()

    def body(self) -> ComposeResult:
        """The widgets above the row of keys."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.add_class(*size_classes(self.app.size), update=False)

    def on_resize(self, event: Resize) -> None:
        # `size` of a screen is the terminal's; `outer_size` is the one that it was laid out for.
        fits = event.size == self.outer_size and all(map(self.has_class, size_classes(event.size)))
        if fits or event.size != self.app.size:
            event.prevent_default()


class OfRun:
    """A first base of a screen or a dialog about a run; the app shows it each new state."""

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state

    def on_mount(self) -> None:
        self.show(self._state)

    def show(self, state: RunState) -> None:
        raise NotImplementedError


def size_classes(size: Size) -> list[str]:
    width = max(step for step in WIDTHS if step[0] <= size.width)
    height = max(step for step in HEIGHTS if step[0] <= size.height)
    return [width[1], height[1]]
