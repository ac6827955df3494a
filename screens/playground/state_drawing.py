"""The drawing of the watched state, literal text cut to its place: next to the conversation or above it."""

from textual.content import Content

from llamagym_tui.game.drawing import MAX_LINES
from llamagym_tui.protocol.literal import literal
from llamagym_tui.screens.widgets.look import ASIDE, own_styles
from llamagym_tui.screens.widgets.numbers import number
from llamagym_tui.screens.widgets.state_text import StateText
from llamagym_tui.state.run import RunState


class StateDrawing(StateText):
    DEFAULT_CSS = own_styles(__file__)

    _lines = 1

    def show(self, state: RunState) -> None:
        """Show another state; the place grows with the largest drawing, and never shrinks: nothing under it jumps."""
        if (drawn := state.view.drawn) is not None:
            self._lines = max(self._lines, min(1 + drawn.text.count("\n"), MAX_LINES))
        self.styles.height = 1 + self._lines
        super().show(state)

    def content_at(self, width: int) -> Content:
        """The title and as many lines as there is room for."""
        lines = [_title(self.state), *_drawn_lines(self.state)]
        if len(lines) > (room := self.content_size.height):
            lines[max(room - 1, 1) :] = [Content.styled("…", ASIDE)]
        return Content("\n").join([line.truncate(width, ellipsis=True) for line in lines])


def _title(state: RunState) -> Content:
    drawn, result = state.view.drawn, state.view.result
    if drawn is None:
        return Content.styled("state", ASIDE)
    if result is None:
        return Content.styled(f"state · episode {drawn.episode:,}, turn {drawn.turn + 1:,}", ASIDE)
    value = result.episode_return
    if value > 0:
        style, glyph = "$text-success", "▲"
    elif value < 0:
        style, glyph = "$text-error", "▼"
    else:
        style, glyph = "$foreground", "■"
    title = Content.styled(f"state · episode {drawn.episode:,}, {result.end} ", ASIDE)
    return title + Content.styled(f"{glyph} {number(value)}", f"bold {style}")


def _drawn_lines(state: RunState) -> list[Content]:
    drawn = state.view.drawn
    if drawn is None:
        return [
            Content.styled(
                "The next observation is drawn here." if state.live else "Not drawn.", ASIDE
            )
        ]
    text = Content(literal(drawn.text))
    for start, stop in drawn.marks:
        if 0 <= start < stop <= len(drawn.text):
            text = text.stylize("reverse", start, stop)
    return text.split("\n", include_separator=False, allow_blank=True)[:MAX_LINES]
