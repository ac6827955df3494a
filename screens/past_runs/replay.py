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
from textual.widget import Widget

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.state.history import Recording, ReplayPlayer, clock_text
from llamagym_tui.state.run import RunState

TICK_S = 1 / 12
"""Seconds between two steps of the player."""
FOLLOW_S = 1.0
"""Seconds between two readings of a log that grows."""


class TimeSlider(Widget):
    ALLOW_SELECT = False
    DEFAULT_CSS = "TimeSlider { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }"

    @dataclass
    class Sought(Message):
        at_s: float

    def __init__(self, player: ReplayPlayer) -> None:
        super().__init__(id="time-slider")
        self._player = player
        self.tooltip = "Click to go to another moment."

    @property
    def bar(self) -> tuple[int, int]:
        """The cells before the bar, and the cells of the bar."""
        start = len(self._left())
        return start, max(1, self.content_size.width - start - len(self._right()))

    def _left(self) -> str:
        player = self._player
        sign = "■" if player.at_end else "▶" if player.playing else "‖"
        return f"{sign} {player.speed:g}×  {clock_text(player.at_s)} "

    def _right(self) -> str:
        recording = self._player.recording
        rest = "" if recording.complete else " …"
        if recording.goes_on:
            rest = ", goes on"
        return f" {clock_text(recording.duration_s)}{rest}"

    def render(self) -> Content:
        _, width = self.bar
        duration_s = max(self._player.recording.duration_s, 1e-9)
        here = round(self._player.at_s / duration_s * (width - 1))
        return Content.assemble(
            (self._left(), "bold"),
            ("━" * here, "$primary"),
            ("●", "bold $accent"),
            ("─" * (width - here - 1), "$aside"),
            (self._right(), "$aside"),
        )

    def on_click(self, event: Click) -> None:
        start, width = self.bar
        share = (event.x - self.gutter.left - start) / max(1, width - 1)
        self.post_message(self.Sought(share * self._player.recording.duration_s))


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
            "jump(5)",
            "Jump",
            tooltip="Five seconds on.",
            id="replay.jump1",
            key_display="← →",
            priority=True,
        ),
        Binding(
            "left",
            "jump(-5)",
            "Jump back",
            tooltip="Five seconds back.",
            id="replay.jump-1",
            show=False,
            priority=True,
        ),
        Binding(
            "home",
            "jump(-1e9)",
            "Beginning",
            tooltip="To the beginning of the recording.",
            id="replay.to0",
            show=False,
            priority=True,
        ),
        Binding(
            "end",
            "jump(1e9)",
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
        # The keys that move time come before those of a live run.
        keys = self._bindings.key_to_bindings
        own = {key: found for key, found in keys.items() if str(found[0].id).startswith("replay.")}
        self._bindings.key_to_bindings = own | keys

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
        recording, is_first = self.player.recording, True
        while recording.goes_on or is_first:
            recording.look_again()  # before its end is read, or its last events would be missed
            while not recording.complete:
                recording.read_on()
                await asyncio.sleep(0)
            if recording.goes_on:
                if is_first:
                    self.action_jump(recording.duration_s)
                await asyncio.sleep(FOLLOW_S)
            is_first = False
        if recording.fault:
            self.notify(recording.fault, severity="error", timeout=30)

    def _do(self, what: Callable[[], None]) -> None:
        """Let the player do something and show the result."""
        try:
            what()
        except LlamaGymError as error:
            self.player.playing = False
            self.notify(str(error), severity="error")
        self.query_one(TimeSlider).refresh()
        if self._shown_state is not self.player.state:
            self._shown_state = self.player.state
            self.post_message(self.Shown(self._shown_state))

    def action_play(self) -> None:
        self._do(self.player.toggle)

    def action_jump(self, by_s: float) -> None:
        self._do(lambda: self.player.jump(self.player.at_s + by_s))

    def action_speed(self, steps: int) -> None:
        self._do(lambda: self.player.change_speed(steps))

    @on(TimeSlider.Sought)
    def go_to(self, message: TimeSlider.Sought) -> None:
        self._do(lambda: self.player.jump(message.at_s))
