"""What a person's table and the wheel share: actions on the agent's keys or by click, and a sentence before them."""

from collections.abc import Sequence

from textual import on
from textual.content import Content
from textual.events import DescendantFocus, Key
from textual.screen import Screen, ScreenResultType
from textual.style import Style
from textual.widgets import Static

from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.key_bar import key_of

KEY = "bold reverse"
ARROWS = {
    "up": ("up", "north", "forward"),
    "down": ("down", "south"),
    "left": ("left", "west"),
    "right": ("right", "east"),
}
"""Actions that an arrow key takes, by their names."""


class ChoosingScreen(Screen[ScreenResultType]):
    """A screen on which a person chooses actions; it is drawn again whenever the focus moves."""

    @property
    def choices(self) -> Sequence[OfferedAction]:
        """The actions that have keys now."""
        raise NotImplementedError

    def action_choose(self, index: int) -> None:
        """Take one of `choices`, by its key or a click, at once."""
        raise NotImplementedError

    def draw(self) -> None:
        raise NotImplementedError

    @property
    def writing(self) -> bool:
        """Whether keys are letters of a sentence."""
        return isinstance(self.focused, SentenceInput)

    def on_key(self, event: Key) -> None:
        """The agent's keys, and arrows, come before any other meaning of a key."""
        for index, choice in enumerate(() if self.writing else self.choices):
            if choice.key in (event.key, event.character) or choice.name in ARROWS.get(
                event.key, ()
            ):
                event.stop()
                event.prevent_default()
                self.action_choose(index)
                return

    def action_reason(self) -> None:
        """Begin a sentence, or leave it as it is."""
        sentence = self.query_one(SentenceInput)
        sentence.display = True
        (self.query_one(ConversationView) if self.writing else sentence).focus()

    def action_end_reason(self) -> None:
        self.query_one(ConversationView).focus()

    @on(DescendantFocus)
    def _focus_moved(self) -> None:
        self.draw()

    def update_text(self, id: str, text: Content | str) -> None:
        self.query_one(f"#{id}", Static).update(text)

    def how_to_choose(self, screen: str) -> str:
        """What a key does now; `screen`: with which the ids of its bindings begin."""
        if self.writing:
            return f"write why; after {key_of(self.app, f'{screen}.done', 'enter')} a key takes its action at once"
        arrows = {name for names in ARROWS.values() for name in names} & {
            choice.name for choice in self.choices
        }
        also = ", arrow keys too" if arrows else ""
        return f"a key takes its action at once{also} · {key_of(self.app, f'{screen}.reason', 'tab')} says why first"

    def show_sentence(self) -> None:
        """Show the sentence's line while it is written or not empty."""
        sentence = self.query_one(SentenceInput)
        sentence.display = self.writing or bool(sentence.value)


def reasoning_input(id: str) -> SentenceInput:
    """The line for a sentence that the reply begins with."""
    return SentenceInput(
        id=id, placeholder="why, in a sentence; enter continues", select_on_focus=False
    )


def choices_row(choices: Sequence[OfferedAction], chosen: object) -> Content:
    """The actions on their keys; the chosen action is marked, and each can be clicked."""
    cells = []
    for index, choice in enumerate(choices):
        is_chosen = choice.action == chosen
        name = f" ▶ {one_line(choice.name)} ◀" if is_chosen else f" {one_line(choice.name)}"
        cell = Content.assemble(
            (f" {one_line(choice.key)} ", KEY), (name, "bold" if is_chosen else "")
        )
        cells.append(cell.stylize(Style.from_meta({"@click": f"screen.choose({index})"})))
    return Content("   ").join(cells)
