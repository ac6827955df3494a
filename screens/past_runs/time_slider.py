"""The row under a replay: whether and how fast it plays, where it is, and where the run took another way.

A click or a drag requests another time with `Sought`; the row itself plays nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple

from textual.content import Content
from textual.events import MouseDown, MouseMove, MouseUp
from textual.message import Message
from textual.widget import Widget

from llamagym_tui.state.replay import Player, clock_text

PLAYED, AHEAD, HERE, TURN = "━", "─", "●", "┃"
"""What a cell of the bar is: before, after or at the moment shown, or a turning point of the run."""


class Bar(NamedTuple):
    """Where the bar lies in the row."""

    start: int
    """Cells before it."""
    width: int


class TimeSlider(Widget):
    ALLOW_SELECT = False
    DEFAULT_CSS = "TimeSlider { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }"

    @dataclass
    class Sought(Message):
        at_s: float

    def __init__(self, player: Player) -> None:
        super().__init__(id="time-slider")
        self._player = player
        self._drawn: object = None
        self.tooltip = (
            "Click or drag to another moment. ┃ is where prompt, mode or a setting changed, or the run was resumed."
        )

    def show(self) -> None:
        player, recording = self._player, self._player.recording
        shown = (player.at_s, player.playing, player.speed, recording.duration_s, recording.complete)
        if shown != self._drawn:
            self._drawn = shown
            self.refresh()

    @property
    def bar(self) -> Bar:
        start = len(self._left())
        return Bar(start, max(1, self.content_size.width - start - len(self._right())))

    def _left(self) -> str:
        player = self._player
        sign = "▶" if player.playing else "■" if player.at_end else "‖"
        return f"{sign} {player.speed:g}×  {clock_text(player.at_s)} "

    def _right(self) -> str:
        recording = self._player.recording
        rest = ", unreadable from there" if recording.fault else "" if recording.complete else " …"
        return f" {clock_text(recording.duration_s)}{rest}"

    def render(self) -> Content:
        width, duration_s = self.bar.width, max(self._player.recording.duration_s, 1e-9)
        here = round(self._player.at_s / duration_s * (width - 1))
        turns = {round(at_s / duration_s * (width - 1)) for at_s in self._player.recording.turning_points}
        cells = [TURN if cell in turns else PLAYED if cell < here else AHEAD for cell in range(width)]
        before, after = "".join(cells[:here]), "".join(cells[here + 1 :])
        bar = Content.assemble((before, "$primary"), (HERE, "bold $accent"), (after, "$foreground 40%"))
        return Content.assemble((self._left(), "bold"), bar, (self._right(), "$foreground 60%"))

    def on_mouse_down(self, event: MouseDown) -> None:
        self.capture_mouse()
        self._seek(event.x)

    def on_mouse_move(self, event: MouseMove) -> None:
        if self.app.mouse_captured is self:
            self._seek(event.x)

    def on_mouse_up(self, event: MouseUp) -> None:
        self.release_mouse()

    def _seek(self, x: int) -> None:
        bar, duration_s = self.bar, self._player.recording.duration_s
        share = (x - self.gutter.left - bar.start) / max(1, bar.width - 1)
        self.post_message(self.Sought(min(max(share, 0.0), 1.0) * duration_s))
