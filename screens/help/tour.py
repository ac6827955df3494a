"""Five hints at the first start. Once they were skipped or read to the end, they are never shown again."""

import contextlib
from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.screens.playground.named_keys import with_keys
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.user_files import data_dir, replace_file

HINTS = [
    (
        "Watch",
        "A language model plays, and PPO trains it in a separate process. You see each message as it "
        "comes: the observation, the agent's reply, the action read from it, the reward.",
    ),
    (
        "Learning",
        "The curve is the mean return over episodes; dotted lines are random and optimal play. "
        "{policy_map} shows what the policy does in every state; {help} explains the figures of its last "
        "update.",
    ),
    (
        "Steer",
        "A first run begins at a pace to watch: {pace.faster} is faster, up to full speed, {pace.slower} "
        "slower. {pause} pauses, {advance.update} makes one update. {mode} switches to inference, where "
        "nothing is learnt. {prompt} edits the system prompt.",
    ),
    (
        "Play",
        "{table} opens a table of your own, even while the model loads; {wheel} takes the wheel of the "
        "watched one. Your episodes are kept as demonstrations, and the model can be trained on them.",
    ),
    (
        "Come back",
        "{quit} writes a checkpoint and leaves. llamagym-tui without arguments lists agents, models and "
        "past runs: resume one, compare some, or replay one with a time slider.",
    ),
]
"""The title and the text of each; keys are named as in `named_keys`."""


def marker() -> Path:
    """A file that is there once the hints were shown."""
    return data_dir() / "tour-seen"


class TourScreen(ModalScreen[None]):
    CSS_PATH = "tour.tcss"
    BINDING_GROUP_TITLE = "Tour"
    BINDINGS = [
        Binding(
            "enter,right,space",
            "move(1)",
            "Next",
            tooltip="The next hint; after the last, the end.",
            id="tour.next",
        ),
        Binding("left", "move(-1)", "Before", tooltip="The previous hint.", id="tour.before"),
        Binding("escape,q", "close", "Skip", tooltip="Show no hints again.", id="tour.skip"),
    ]
    _index = 0

    def compose(self) -> ComposeResult:
        with Vertical(id="tour") as frame:
            frame.border_title = "first time here"
            yield Static(id="tour-text", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._show()

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
            self._show()

    def action_close(self) -> None:
        # If nothing can be written, the hints are shown again next time, which does no harm.
        with contextlib.suppress(OSError):
            replace_file(marker(), b"")
        self.dismiss()

    def _show(self) -> None:
        title, text = HINTS[self._index]
        text = with_keys(text, partial(key_of, self.app))
        self.query_one("#tour-text", Static).update(
            Content.assemble((f"{title}. ", "bold $primary"), text)
        )
        self.query_one("#tour").border_subtitle = Content(f"{self._index + 1} of {len(HINTS)}")
        self.refresh_bindings()
