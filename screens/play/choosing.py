"""The screen on which a person chooses an action for an observation, by the agent's keys or by a click.

The table, the wheel and the seat of a class are its uses.
"""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.content import Content
from textual.events import Key
from textual.style import Style
from textual.widgets import Static

from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.view import ConversationView, TurnInFull
from llamagym_tui.screens.widgets.frame import Fitted, OfRun
from llamagym_tui.screens.widgets.look import ASIDE

KEY = "bold reverse"
ARROWS = {
    "up": ("up", "north", "forward"),
    "down": ("down", "south"),
    "left": ("left", "west"),
    "right": ("right", "east"),
}
"""The names of the actions that an arrow key takes."""


class ChoosingScreen(OfRun, Fitted[None]):
    """Header, state, conversation, the actions on their keys, and some lines below them."""

    CSS_PATH = "choosing.tcss"
    BY_PERSON = False
    """True if a person speaks in the agent's place throughout."""

    def body(self) -> ComposeResult:
        yield Static(id="play-header", markup=False)
        yield Static(id="play-drawing", markup=False)
        conversation = ConversationView(id="play-conversation", by_person=self.BY_PERSON)
        conversation.shows_newest = True
        yield conversation
        yield TurnInFull(conversation)
        yield Static(id="play-choices", markup=False)
        yield Static(id="play-notes", markup=False)

    @property
    def choices(self) -> Sequence[OfferedAction]:
        """The actions that have keys now."""
        raise NotImplementedError

    def action_choose(self, index: int) -> None:
        """Take one of `choices`, by its key or a click, at once."""
        raise NotImplementedError

    def on_key(self, event: Key) -> None:
        """The agent's keys, and arrows, come before any other meaning of a key."""
        for index, choice in enumerate(self.choices):
            by_arrow = choice.name in ARROWS.get(event.key, ())
            if by_arrow or choice.key in (event.key, event.character):
                event.stop()
                event.prevent_default()
                self.action_choose(index)
                return

    def draw_play(
        self, header: Content, actions: Content, now: str, notes: Sequence[Content]
    ) -> None:
        """Draw all but drawing and conversation.

        Args:
            actions: the actions, or the sentence in their place.
            now: what a key does now.
            notes: a line each.
        """
        self.query_one("#play-header", Static).update(header)
        choices = Content("\n").join([actions, Content.styled(now, ASIDE)])
        self.query_one("#play-choices", Static).update(choices)
        self.query_one("#play-notes", Static).update(Content("\n").join(notes))
        self.refresh_bindings()

    @property
    def how_to_choose(self) -> str:
        arrows = {name for names in ARROWS.values() for name in names}
        has_arrows = any(choice.name in arrows for choice in self.choices)
        return f"a key takes its action at once{', arrow keys too' if has_arrows else ''}"


def choices_row(choices: Sequence[OfferedAction], chosen: object = None) -> Content:
    """The actions on their keys; the chosen action is marked, and each can be clicked."""
    cells = []
    for index, choice in enumerate(choices):
        is_chosen = choice.action == chosen
        name = f" ▶ {one_line(choice.name)} ◀" if is_chosen else f" {one_line(choice.name)}"
        key = f" {one_line(choice.key)} "
        cell = Content.assemble((key, KEY), (name, "bold" if is_chosen else ""))
        cells.append(cell.stylize(Style.from_meta({"@click": f"screen.choose({index})"})))
    return Content("   ").join(cells)
