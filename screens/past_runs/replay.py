"""A past run on the playground's screen, with a time slider. Keys that need a trainer are grey."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, TextArea

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.state.history import Recording, ReplayPlayer, clock_text
from llamagym_tui.state.run import RunState

PLAYED, HERE, AHEAD = "━", "●", "─"
"""The cells of the bar before, at and after the moment."""


class TimeSlider(Widget):
    ALLOW_SELECT = False
    DEFAULT_CSS = "TimeSlider { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }"

    shown: reactive[object] = reactive(None)
    """The values that the row shows; a change draws it again."""

    @dataclass
    class Sought(Message):
        at_s: float

    def __init__(self, player: ReplayPlayer) -> None:
        super().__init__(id="time-slider")
        self._player = player
        self.tooltip = "Click to go to another moment."

    def show(self) -> None:
        player, recording = self._player, self._player.recording
        self.shown = (
            player.at_s,
            player.playing,
            player.speed,
            recording.duration_s,
            recording.complete,
        )

    @property
    def bar(self) -> tuple[int, int]:
        """The cells before the bar, and the cells of the bar."""
        start = len(self._left())
        return start, max(1, self.content_size.width - start - len(self._right()))

    def _left(self) -> str:
        player = self._player
        if player.playing:
            sign = "▶"
        elif player.at_end:
            sign = "■"
        else:
            sign = "‖"
        return f"{sign} {player.speed:g}×  {clock_text(player.at_s)} "

    def _right(self) -> str:
        recording = self._player.recording
        if recording.fault:
            rest = ", unreadable from there"
        elif recording.goes_on:
            rest = ", goes on"
        else:
            rest = "" if recording.complete else " …"
        return f" {clock_text(recording.duration_s)}{rest}"

    def render(self) -> Content:
        _, width = self.bar
        duration_s = max(self._player.recording.duration_s, 1e-9)
        here = round(self._player.at_s / duration_s * (width - 1))
        before, after = PLAYED * here, AHEAD * (width - here - 1)
        bar = Content.assemble((before, "$primary"), (HERE, "bold $accent"), (after, "$aside"))
        return Content.assemble((self._left(), "bold"), bar, (self._right(), "$aside"))

    def on_click(self, event: Click) -> None:
        start, width = self.bar
        share = (event.x - self.gutter.left - start) / max(1, width - 1)
        self.post_message(
            self.Sought(min(max(share, 0.0), 1.0) * self._player.recording.duration_s)
        )


TICK_S = 1 / 12
"""Seconds between two steps of the player."""
FOLLOW_S = 1.0
"""Seconds between two readings of a log that grows."""
JUMP_S = 5.0
"""Seconds of a jump."""
PLACES = {
    "play": -4,
    "jump": -3,
    "to": -2,
    "speed": -1,
    "app.help": 1,
    "app.leave_replay": 2,
}
"""The order of the keys: those that move time first, those of a live run (0), help and the way out."""


class ReplayScreen(PlaygroundScreen):
    CSS_PATH = "../playground/playground.tcss"
    BINDING_GROUP_TITLE = "Replay"
    BINDINGS = [
        Binding(
            "space",
            "play",
            "Play/pause",
            tooltip="Play or pause.",
            id="replay.play",
            key_display="space",
            priority=True,
        ),
        Binding(
            "right",
            "jump(1)",
            "Jump",
            tooltip="Five seconds on.",
            id="replay.jump1",
            key_display="← →",
            priority=True,
        ),
        Binding(
            "left",
            "jump(-1)",
            "Jump back",
            tooltip="Five seconds back.",
            id="replay.jump-1",
            show=False,
            priority=True,
        ),
        Binding(
            "home",
            "to(0)",
            "Beginning",
            tooltip="To the beginning of the recording.",
            id="replay.to0",
            show=False,
            priority=True,
        ),
        Binding(
            "end",
            "to(1)",
            "End",
            tooltip="To the end of the recording.",
            id="replay.to1",
            show=False,
            priority=True,
        ),
        Binding(
            "plus,equals_sign",
            "speed(1)",
            "Speed",
            tooltip="Twice as fast.",
            id="replay.speed1",
            key_display="− +",
            priority=True,
        ),
        Binding(
            "minus",
            "speed(-1)",
            "Slower",
            tooltip="Half as fast.",
            id="replay.speed-1",
            show=False,
            priority=True,
        ),
        Binding(
            "i",
            "inspect",
            "Inspect tokens",
            tooltip="The last reply that was inspected in the recording; others need a trainer.",
            id="inspect",
            show=False,
        ),
        Binding(
            "escape,q", "app.leave_replay", "Back", tooltip="Leave the replay.", id="replay.leave"
        ),
    ]

    @dataclass
    class Shown(Message):
        state: RunState

    def __init__(self, recording: Recording) -> None:
        self.player = ReplayPlayer(recording)
        super().__init__(self.player.state)
        self._shown_state: RunState | None = None
        keys = self._bindings.key_to_bindings
        order = sorted(keys, key=lambda key: PLACES.get(keys[key][0].action.split("(")[0], 0))
        self._bindings.key_to_bindings = {key: keys[key] for key in order}

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield TimeSlider(self.player)

    def on_mount(self) -> None:
        self._read()
        self.set_interval(TICK_S, partial(self._do, self.player.tick))

    def on_screen_resume(self) -> None:
        """Paint again: the recording went on behind another screen."""
        self._shown_state = None

    @work(exclusive=True, group="recording")
    async def _read(self) -> None:
        recording, shown = self.player.recording, False
        while recording.goes_on or not shown:
            recording.look_again()  # before its end is read, or its last events would be missed
            while not recording.complete:
                recording.read_on()
                await asyncio.sleep(0)
            if recording.goes_on:
                if not shown:
                    self.action_to(1)
                await asyncio.sleep(FOLLOW_S)
            shown = True
        if recording.fault:
            self.notify(recording.fault, severity="error", timeout=30)

    def _do(self, what: Callable[[], None]) -> None:
        """Let the player do something and show the result."""
        try:
            what()
        except LlamaGymError as error:
            self.player.playing = False
            self.notify(str(error), severity="error")
        self.query_one(TimeSlider).show()
        if self._shown_state is not self.player.state:
            self._shown_state = self.player.state
            self.post_message(self.Shown(self._shown_state))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys move time unless a text is being typed."""
        if PLACES.get(action, 0) < 0:
            return not isinstance(self.focused, Input | TextArea)
        return super().check_action(action, parameters)

    def action_play(self) -> None:
        self._do(self.player.toggle)

    def action_jump(self, steps: int) -> None:
        self._do(lambda: self.player.jump(self.player.at_s + steps * JUMP_S))

    def action_to(self, share: int) -> None:
        self._do(lambda: self.player.jump(share * self.player.recording.duration_s))

    def action_speed(self, steps: int) -> None:
        self._do(lambda: self.player.change_speed(steps))

    @on(TimeSlider.Sought)
    def go_to(self, message: TimeSlider.Sought) -> None:
        self._do(lambda: self.player.jump(message.at_s))
