"""Five hints at the first run, each beside what it speaks of. Once they were skipped or read to the end, they are never
shown again."""

import contextlib
from functools import partial
from pathlib import Path
from typing import NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Region, Size, Spacing
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.screens.playground.named_keys import with_keys
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.user_files import data_dir, replace_file


class Hint(NamedTuple):
    title: str
    about: str
    """Selects what it speaks of, in the playground."""
    text: str
    """Keys are named as in `named_keys`."""


HINTS = [
    Hint(
        "Watch",
        "#conversation-pane",
        "A language model plays, and PPO trains it in a separate process. Each line is a turn: what it "
        "saw, the action read from its reply, the reward. {turn.before} marks one and shows all of it.",
    ),
    Hint(
        "Learning",
        "#side",
        "The curve is the mean return over episodes; dotted lines are random and optimal play. "
        "{policy_map} shows what the policy does in every state; {help} explains the figures of its last "
        "update.",
    ),
    Hint(
        "Steer",
        "KeyBar",
        "A first run begins at a pace to watch: {pace.faster} is faster, up to full speed, {pace.slower} "
        "slower. {pause} pauses, {advance.update} makes one update. {mode} switches to inference, where "
        "nothing is learnt. {prompt} edits the system prompt.",
    ),
    Hint(
        "Play",
        "KeyBar",
        "{table} opens a table of your own, even while the model loads; {wheel} takes the wheel of the "
        "watched one. Your episodes are kept as demonstrations, and the model can be trained on them.",
    ),
    Hint(
        "Come back",
        "RunHeader",
        "This is the run. {quit} writes a checkpoint and leaves it. llamagym-tui without arguments lists "
        "agents, models and past runs: resume one, compare some, or replay one with a time slider.",
    ),
]
KEYS = {"next": "enter", "skip": "escape"}
"""Of the bindings that the box names."""
WIDEST = 90
"""Cells of the box at most, with its border."""
EDGES = 4
"""Cells of a row of the box that are border and padding."""
FOLLOWS_S = 0.25
"""Seconds between two looks at where that lies."""
NARROWEST = 36
"""Cells beside what is spoken of, from which the box stands there."""


class Placed(NamedTuple):
    """Where the box stands."""

    region: Region
    arrow: str
    """To what it speaks of; empty: that is not in view."""


def placed(text: Content, about: Region, screen: Size) -> Placed:
    """The box of a text next to what it speaks of, and not on it; where there is no room, at the bottom."""
    places = [
        (Region(about.right, 0, screen.width - about.right, screen.height), "◀"),
        (Region(0, 0, about.x, screen.height), "▶"),
        (Region(0, 0, screen.width, about.y), "▼"),
        (Region(0, about.bottom, screen.width, screen.height - about.bottom), "▲"),
    ]
    for room, arrow in places if about.area else []:
        width = min(room.width, WIDEST)
        height = _height(text, width)
        if width < NARROWEST or height > room.height:
            continue
        if arrow in "◀▶":
            x = room.x if arrow == "◀" else room.right - width
            y = about.y + (about.height - height) // 2
        else:
            x = about.x + (about.width - width) // 2
            y = room.y if arrow == "▲" else room.bottom - height
        box = Region(x, y, width, height).constrain("inside", "inside", Spacing(), room)
        return Placed(box, arrow)
    width = min(screen.width, WIDEST)
    height = min(_height(text, width), screen.height)
    x, y = (screen.width - width) // 2, screen.height - height
    return Placed(Region(x, y, width, height), "")


def _height(text: Content, width: int) -> int:
    """Rows of the box, with its border."""
    return len(text.wrap(max(1, width - EDGES))) + 2


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
    _about = Region()
    """Where what is spoken of lay when the hint was placed."""

    def compose(self) -> ComposeResult:
        yield Static(id="tour", markup=False)

    def on_mount(self) -> None:
        self._show()
        self.set_interval(FOLLOWS_S, self._follow)

    def on_resize(self) -> None:
        self._show()

    def on_click(self) -> None:
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
        """Show the hint, beside what it speaks of as that lies now."""
        hint = HINTS[self._index]
        self._about = self._region_of(hint.about)
        text = Content(with_keys(hint.text, partial(key_of, self.app)))
        region, arrow = placed(text, self._about, self.app.size)
        box = self.query_one("#tour", Static)
        box.update(text)
        box.border_title = Content(f"{arrow} {hint.title}".strip())
        next_key, skip_key = (key_of(self.app, f"tour.{id}", key) for id, key in KEYS.items())
        box.border_subtitle = Content(
            f"{next_key} goes on, {skip_key} skips · {self._index + 1} of {len(HINTS)}"
        )
        box.styles.offset = region.offset
        box.styles.width = region.width
        box.styles.height = region.height
        self.refresh_bindings()

    def _follow(self) -> None:
        """Go along with what is spoken of: panes come, and others become smaller, while a run begins."""
        # The last tick may come after it was left.
        if self.is_current and self._about != self._region_of(HINTS[self._index].about):
            self._show()

    def _region_of(self, about: str) -> Region:
        """Where something of the screen below lies; an empty region where it is not in view."""
        found = [each for each in self.app.screen_stack[-2].query(about) if each.display]
        return found[0].region if found else Region()
