"""The hand that is played: the drawing of its state, literal text cut to its place, the probabilities, the result.

Next to the drawing stand the actions with their probabilities as bars; at full speed, only that of the action taken.
"""

from textual.content import Content

from llamagym_tui.game.drawing import MAX_LINES
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.look import ASIDE, drawing_content, own_styles
from llamagym_tui.screens.widgets.numbers import bar, number, share
from llamagym_tui.screens.widgets.run_header import StateText
from llamagym_tui.state.run import RunState

MOST_ACTIONS = 6
"""Actions whose probabilities are shown."""
GAP = 4
"""Cells between the drawing and what stands next to it."""
NAME = 12
"""Cells of an action's name, at most."""
LEAST_ROOM = 24
"""Cells from which there is room for them."""


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
        drawing = self._drawn_lines()
        wide = max(line.cell_length for line in drawing) + GAP
        if self.state.view.drawn is not None and width - wide >= LEAST_ROOM:
            beside = [*_probabilities(self.state), *_result(self.state)]
            lines = max(len(drawing), min(len(beside), self._lines))
            pairs = [
                (
                    drawing[at] if at < len(drawing) else Content(""),
                    beside[at] if at < len(beside) else Content(""),
                )
                for at in range(lines)
            ]
            drawing = [left.pad_right(wide - left.cell_length) + right for left, right in pairs]
        lines_shown = [_title(self.state), *drawing]
        if len(lines_shown) > (room := self.content_size.height):
            lines_shown[max(room - 1, 1) :] = [Content.styled("…", ASIDE)]
        return Content("\n").join([line.truncate(width, ellipsis=True) for line in lines_shown])

    def _drawn_lines(self) -> list[Content]:
        drawn = self.state.view.drawn
        if drawn is None:
            words = "The next observation is drawn here." if self.state.live else "Not drawn."
            return [Content.styled(words, ASIDE)]
        text = drawing_content(self.app, drawn.text, drawn.marks, drawn.grounds)
        return text.split("\n", include_separator=False, allow_blank=True)[:MAX_LINES]


def _title(state: RunState) -> Content:
    drawn, result = state.view.drawn, state.view.result
    if drawn is None:
        return Content.styled("state", ASIDE)
    if result is None:
        return Content.styled(f"state · episode {drawn.episode:,}, turn {drawn.turn + 1:,}", ASIDE)
    title = Content.styled(f"state · episode {drawn.episode:,}, {result.end} ", ASIDE)
    return title + _return_text(result.episode_return)


def _return_text(value: float) -> Content:
    if value > 0:
        style, glyph = "$text-success", "▲"
    elif value < 0:
        style, glyph = "$text-error", "▼"
    else:
        style, glyph = "$foreground", "■"
    return Content.styled(f"{glyph} {number(value)}", f"bold {style}")


def _probabilities(state: RunState) -> list[Content]:
    """A bar for each of the likeliest actions of the drawn turn, or of the one taken last in its episode."""
    drawn, probed, acted = state.view.drawn, state.view.probed, state.view.acted
    assert drawn is not None
    chosen = ""
    if acted is not None and (acted.episode, acted.turn) in (
        (drawn.episode, drawn.turn),
        (drawn.episode, drawn.turn - 1),
    ):
        chosen = one_line(acted.action_name)
    shares: dict[str, float] = {}
    if probed is not None and (probed.episode, probed.turn) == (drawn.episode, drawn.turn):
        shares = dict(zip(map(one_line, probed.names), probed.shares, strict=True))
        chosen = chosen if acted is not None and acted.turn == drawn.turn else ""
    elif chosen and acted is not None and acted.probability is not None:
        shares = {chosen: acted.probability}
    elif chosen:
        return [Content.styled(f"→ {chosen}", "bold")]
    likeliest = sorted(shares, key=shares.__getitem__, reverse=True)[:MOST_ACTIONS]
    wide = min(NAME, max(map(len, likeliest), default=0))
    return [
        Content.assemble(
            ("→ " if name == chosen else "  ", "bold"),
            (f"{name[:wide]:<{wide}} ", "bold" if name == chosen else ""),
            (f"{bar(shares[name]):<10}", "$primary"),
            f" {share(shares[name], 0):>4}",
        )
        for name in likeliest
    ]


def _result(state: RunState) -> list[Content]:
    result = state.view.result
    return (
        [] if result is None else [Content(""), Content("  ") + _return_text(result.episode_return)]
    )
