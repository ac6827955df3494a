"""A past run on the playground's screen, with a time slider. There is no trainer, so keys that need one are grey.

The events are read on in small pieces while the beginning is played already.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import ScreenResume
from textual.message import Message
from textual.widgets import Input, TextArea

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.screens.past_runs.time_slider import TimeSlider
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.key_bar import own_keys
from llamagym_tui.state.replay import Player, Recording
from llamagym_tui.state.run import RunState

TICK_S = 1 / 12
"""Seconds between two looks at what is due."""
JUMP_S = 5.0
"""Seconds of a jump."""
FIRST = ("play", "jump", "to", "speed")
"""Actions that move time, in the order of their keys in the row, before all others."""
LAST = ("app.quit", "app.help", "app.leave_replay")
"""Actions whose keys stand at the end of the row, where they are seen however narrow it is."""


class ReplayScreen(PlaygroundScreen):
    CSS_PATH = "../playground/playground.tcss"
    BINDING_GROUP_TITLE = "Replay"
    SHOWS_DIM_KEYS = False
    """Help leaves out what only a trainer could do."""
    BINDINGS: ClassVar[list[BindingType]] = own_keys(__file__)

    @dataclass
    class Shown(Message):
        state: RunState

    def __init__(
        self, recording: Recording, demos_path: Callable[[], str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.player = Player(recording, clock=clock)
        super().__init__(self.player.state, demos_path)
        self._shown_state: RunState | None = None
        keys = self._bindings.key_to_bindings
        order = sorted(keys, key=lambda key: _place(keys[key][0].action))
        self._bindings.key_to_bindings = {key: keys[key] for key in order}

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield TimeSlider(self.player)

    def on_mount(self) -> None:
        self._read()
        self.set_interval(TICK_S, partial(self._do, self.player.tick))

    def on_screen_resume(self, event: ScreenResume) -> None:
        """Paint what has been played behind another screen."""
        self._shown_state = None

    @work(exclusive=True, group="recording")
    async def _read(self) -> None:
        recording = self.player.recording
        while not recording.complete:
            recording.read_on()
            await asyncio.sleep(0)
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
        """Time moves unless a text is being typed."""
        if action in FIRST:
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


def _place(action: str) -> int:
    """Where a key stands in the row: keys of a live run come between ours, for a narrow row has no room for them."""
    name = action.split("(")[0]
    order = (*FIRST, "", *LAST)
    return order.index(name if name in order else "")
