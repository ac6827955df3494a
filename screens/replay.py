"""A past run on the playground's screen, with a time slider. No trainer is there, so keys that need one are grey.

The events are read on in small pieces while the beginning is played already.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input, TextArea

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.replay import Player, Recording
from llamagym_tui.run_state import RunState
from llamagym_tui.screens.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.literal import literal
from llamagym_tui.screens.widgets.time_slider import TimeSlider

TICK_S = 1 / 12
"""Seconds between two looks at what is due."""
JUMP_S = 5.0
"""Seconds of a small jump."""
JUMP_SHARE = 0.1
"""Share of the recording of a large one."""
OURS = ("play", "jump", "leap", "to", "step", "speed", "leave")
"""Actions of a replay."""
FREE = (*OURS, "app.help", "app.quit", "app.command_palette")
"""Actions that need no trainer."""


class ReplayScreen(PlaygroundScreen):
    """A run, recorded."""

    CSS_PATH = "playground.tcss"
    BINDING_GROUP_TITLE = "Replay"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "play", "Play/pause", id="replay.play", priority=True, tooltip="Play, or hold still."),
        Binding("left", "jump(-1)", "5 s", id="replay.back", priority=True, tooltip="Five seconds back."),
        Binding("right", "jump(1)", "5 s", id="replay.on", priority=True, tooltip="Five seconds on."),
        Binding(
            "shift+left", "leap(-1)", "Tenth back", id="replay.leap_back", priority=True, show=False, tooltip="A tenth."
        ),
        Binding(
            "shift+right", "leap(1)", "Tenth on", id="replay.leap_on", priority=True, show=False, tooltip="A tenth."
        ),
        Binding("home", "to(0)", "Start", id="replay.start", priority=True, tooltip="To the beginning."),
        Binding("end", "to(1)", "End", id="replay.end", priority=True, tooltip="To the end of the recording."),
        Binding(
            "minus", "speed(-1)", "Slower", key_display="−", id="replay.slower", priority=True, tooltip="Half as fast."
        ),
        Binding(
            "plus,equals_sign",
            "speed(1)",
            "Faster",
            key_display="+",
            id="replay.faster",
            priority=True,
            tooltip="Twice as fast.",
        ),
        Binding(
            "full_stop",
            "step",
            "Event",
            key_display=".",
            id="replay.step",
            priority=True,
            tooltip="Pause after the next event.",
        ),
        Binding("escape", "leave", "Back", id="replay.leave", tooltip="Leave the replay."),
    ]

    @dataclass
    class Shown(Message):
        """Another moment of the run is to be seen."""

        state: RunState

    @dataclass
    class Left(Message):
        """The replay is over for the person."""

    def __init__(
        self, recording: Recording, demos_path: Callable[[], str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """A replay that begins when it is mounted.

        Args:
            recording: of the run; nothing of it needs to have been read.
            demos_path: tells where demonstrations are kept.
            clock: seconds, monotonic.
        """
        self.player = Player(recording, clock=clock)
        super().__init__(self.player.state, demos_path)
        self._told: RunState | None = None
        keys = self._bindings.key_to_bindings
        ours = {key: bindings for key, bindings in keys.items() if bindings[0].action.split("(")[0] in FREE}
        self._bindings.key_to_bindings = {**ours, **keys}  # a narrow row of keys has room for the first ones only

    def compose(self) -> ComposeResult:
        """The playground with a slider under it."""
        yield from super().compose()
        yield TimeSlider(self.player)

    def on_mount(self) -> None:
        """Read and play."""
        self._read()
        self.set_interval(TICK_S, self._tick)

    @work(exclusive=True, group="recording")
    async def _read(self) -> None:
        recording = self.player.recording
        while not recording.complete:
            try:
                recording.read_on()
            except LlamaGymError as error:
                self.notify(literal(str(error)), severity="error", markup=False, timeout=30)
                return
            await asyncio.sleep(0)

    def _tick(self) -> None:
        self._do(self.player.tick)

    def _do(self, what: Callable[[], None]) -> None:
        """Let the player do something and show what comes of it."""
        try:
            what()
        except LlamaGymError as error:
            self.player.playing = False
            self.notify(literal(str(error)), severity="error", markup=False)
        self.query_one(TimeSlider).show()
        if self._told is not self.player.state:
            self._told = self.player.state
            self.post_message(self.Shown(self._told))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Time moves unless a text is being typed; nobody is there to take commands."""
        if action in OURS:
            return action == "leave" or not isinstance(self.focused, Input | TextArea)
        return super().check_action(action, parameters)

    def action_play(self) -> None:
        """Play, or hold still."""
        self._do(self.player.toggle)

    def action_jump(self, steps: int) -> None:
        """Some seconds back or on."""
        self._do(lambda: self.player.jump(self.player.at_s + steps * JUMP_S))

    def action_leap(self, steps: int) -> None:
        """A tenth of the recording back or on."""
        self._do(lambda: self.player.jump(self.player.at_s + steps * JUMP_SHARE * self.player.recording.duration_s))

    def action_to(self, share: int) -> None:
        """To the beginning or the end."""
        self._do(lambda: self.player.jump(share * self.player.recording.duration_s))

    def action_speed(self, steps: int) -> None:
        """Slower or faster."""
        self._do(lambda: self.player.change_speed(steps))

    def action_step(self) -> None:
        """The next event, and no more."""
        self._do(self.player.step)

    def action_leave(self) -> None:
        """Back to where the replay was opened."""
        self.post_message(self.Left())

    @on(TimeSlider.Sought)
    def go_to(self, message: TimeSlider.Sought) -> None:
        """The slider was moved."""
        self._do(lambda: self.player.jump(message.at_s))


def make_replay(run_dir: str | Path, demos_path: Callable[[], str]) -> ReplayScreen:
    """The replay of a run.

    Raises:
        RunStoreError: the folder holds no run.
    """
    return ReplayScreen(Recording(run_dir), demos_path)
