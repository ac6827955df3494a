"""The colours of what a field stands on, of `llamagym_tui.game.pieces`, in every theme and at every depth."""

from collections.abc import Iterable

from textual.app import App
from textual.color import Color
from textual.content import Content
from textual.style import Style

from llamagym_tui.protocol.literal import literal
from llamagym_tui.screens.widgets.contrast import text_on

OF_TERMINAL = {
    "ice": "ansi_cyan",
    "danger": "ansi_red",
    "goal": "ansi_green",
    "wall": "ansi_bright_black",
    "thing": "ansi_magenta",
    "player": "ansi_yellow",
    "card": "ansi_white",
    "back": "ansi_blue",
}
"""Where a terminal's own colours are used; the floor has none."""


def ground_style(app: App[object], ground: str) -> Style:
    """The ground and a text that can be read on it; nothing for a name that is not known."""
    if app.native_ansi_color:
        color = OF_TERMINAL.get(ground)
        return Style(Color.parse(color), Color.parse("ansi_black")) if color else Style()
    color = app.theme_variables.get(f"field-{ground}")
    if color is None:
        return Style()
    return Style(Color.parse(color), text_on(Color.parse(color)))


def drawing_content(
    app: App[object],
    text: str,
    marks: Iterable[tuple[int, int]],
    grounds: Iterable[tuple[int, int, str]],
) -> Content:
    """A drawing, literal; what is marked is reversed."""
    content = Content(literal(text))
    for start, stop, ground in grounds:
        if 0 <= start < stop <= len(text):
            content = content.stylize(ground_style(app, ground), start, stop)
    for start, stop in marks:
        if 0 <= start < stop <= len(text):
            content = content.stylize("reverse", start, stop)
    return content
