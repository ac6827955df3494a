"""Five short hints at the first start, over the screen that they are about; escape ends them, and they never return."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.screens.widgets.key_bar import KeyBar, moved_key
from llamagym_tui.user_files import data_dir

MARKER = "tour-seen"
"""File in the data folder that says that the hints were shown."""
KEYS = {"help": "?", "pause": "space", "mode": "t", "prompt": "p", "table": "h", "quit": "q"}
"""Keys that are spoken of, by the ids of their bindings, where nobody has moved them."""
HINTS = (
    (
        "Watch",
        "A language model plays, and PPO trains it in a process of its own. Each message is told as it comes: what "
        "the agent saw, what it said, the action that was read out of it, the reward.",
    ),
    (
        "Learning",
        "The curve is the mean return over episodes, with random and optimal play as dotted lines. The figures are of "
        "the last update of the policy; {help} says what each means.",
    ),
    (
        "Steer",
        "{pause} holds everything still. {mode} switches between training and inference, where nothing is learnt. "
        "{prompt} edits the system prompt; the next episodes have it.",
    ),
    (
        "Play",
        "{table} opens a table of your own, even while the model loads. What you play is kept as demonstrations, from "
        "which the model can learn.",
    ),
    (
        "Come back",
        "{quit} writes a checkpoint and leaves. llamagym-tui without a word lists agents, models and past runs: go on "
        "with one, compare two, or replay one with a time slider.",
    ),
)


def marker() -> Path:
    return data_dir() / MARKER


def was_seen() -> bool:
    return marker().exists()


class TourScreen(ModalScreen[None]):
    CSS_PATH = "tour.tcss"
    BINDING_GROUP_TITLE = "Tour"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,right,space", "move(1)", "Next", id="tour.next", tooltip="The next hint; the last one ends it."),
        Binding("left", "move(-1)", "Before", id="tour.before", tooltip="The hint before."),
        Binding("escape,q", "close", "Skip", id="tour.skip", tooltip="No more hints, never again."),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._index = 0

    def compose(self) -> ComposeResult:
        with Vertical(id="tour") as frame:
            frame.border_title = "first time here"
            yield Static(id="tour-text", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._say()

    def on_click(self, event: Click) -> None:
        if not isinstance(event.widget, KeyBar):
            self.action_move(1)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return None if parameters == (-1,) and self._index == 0 else True

    def action_move(self, steps: int) -> None:
        if self._index + steps >= len(HINTS):
            self.action_close()
        else:
            self._index = max(0, self._index + steps)
            self._say()

    def action_close(self) -> None:
        # Where nothing can be written they come again, and do no harm.
        with contextlib.suppress(OSError):
            marker().parent.mkdir(parents=True, exist_ok=True)
            marker().touch()
        self.dismiss()

    def _say(self) -> None:
        title, text = HINTS[self._index]
        text = text.format(**{id: moved_key(self.app, id, usual) for id, usual in KEYS.items()})
        self.query_one("#tour-text", Static).update(Content.assemble((f"{title}. ", "bold $primary"), text))
        self.query_one("#tour").border_subtitle = f"{self._index + 1} of {len(HINTS)}"
        self.refresh_bindings()
