"""The screen on which a person chooses an action for an observation, by the agent's keys or by a click.

The table, the wheel and the seat of a class are its uses.
"""

from collections.abc import Iterable, Iterator, Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.style import Style
from textual.widget import Widget

from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.game.drawing import StateDrawing
from llamagym_tui.game.large_drawing import large_drawing
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.conversation.turns import likely_actions
from llamagym_tui.screens.conversation.view import ConversationView, TurnInFull
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.frame import Fitted, OfRun
from llamagym_tui.screens.widgets.look import ASIDE, drawing_content

KEY = "bold reverse"
ARROWS = {
    "up": ("up", "north", "forward"),
    "down": ("down", "south"),
    "left": ("left", "west"),
    "right": ("right", "east"),
}
"""The names of the actions that an arrow key takes."""
BETWEEN = Content("   ")
"""Between two actions."""
MOST_BARS = 3
"""Actions whose probability is shown."""


class Board(Widget):
    """The state as large as there is room, or its words; a field with the key of an action takes it by a click."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._drawing = StateDrawing("")
        self._words = ""
        self._choices: Sequence[OfferedAction] = ()

    def show(self, drawing: StateDrawing, words: str, choices: Sequence[OfferedAction]) -> None:
        """Show a drawing or, if it is empty, words."""
        shown = (drawing, words, tuple(choices))
        if shown != (self._drawing, self._words, self._choices):
            self._drawing, self._words, self._choices = shown
            self.refresh()

    @property
    def has_all_keys(self) -> bool:
        """True if each action has a field with its key."""
        signs = {self._drawing.text[first:last].strip() for first, last, _ in self._drawing.grounds}
        return bool(self._choices) and all(choice.key in signs for choice in self._choices)

    def render(self) -> Content:
        if not self._drawing.text:
            return Content(literal(self._words))
        drawing = large_drawing(*self._drawing, *self.content_size)
        content = drawing_content(self.app, *drawing)
        for first, last, index in _fields_with_keys(drawing, self._choices):
            taking = Style.from_meta({"@click": f"screen.choose({index})"})
            content = content.stylize(taking, first, last)
        return content


def _fields_with_keys(
    drawing: StateDrawing, choices: Sequence[OfferedAction]
) -> Iterator[tuple[int, int, int]]:
    """The parts of fields with a key: first character, the one after the last, and the index of the action.

    The key of a field on three lines stands on the middle one.
    """
    indices = {choice.key: index for index, choice in enumerate(choices)}
    lines = drawing.text.split("\n")
    for first, last, _ in drawing.grounds:
        y = drawing.text.count("\n", 0, first)
        x = first - (drawing.text.rfind("\n", 0, first) + 1)
        for line in lines[max(0, y - 1) : y + 2]:
            index = indices.get(line[x : x + last - first].strip())
            if index is not None:
                yield first, last, index


class ChoosingScreen(OfRun, Fitted[None]):
    """The state, what came of the last action, the actions on their keys, and some lines below them."""

    CSS_PATH = "choosing.tcss"
    BY_PERSON = False
    """True if a person speaks in the agent's place throughout."""
    BINDINGS = [
        Binding(
            "tab",
            "told",
            "What the model is told",
            tooltip="Show the state in the words that the model gets, with all turns; or the board again.",
            id="play.told",
        )
    ]

    def body(self) -> ComposeResult:
        yield Words(id="play-header")
        yield Board(id="play-board")
        conversation = ConversationView(id="play-conversation", by_person=self.BY_PERSON)
        conversation.shows_newest = True
        yield Vertical(conversation, TurnInFull(conversation), id="play-told")
        yield Words(id="play-result")
        yield Words(id="play-choices")
        yield Words(id="play-notes")

    @property
    def choices(self) -> Sequence[OfferedAction]:
        """The actions that have keys now."""
        raise NotImplementedError

    @property
    def is_told(self) -> bool:
        """True while the words for the model are shown."""
        return self.has_class("-told")

    def action_told(self) -> None:
        self.toggle_class("-told")
        self.show(self._state)

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
        self,
        header: Content,
        result: Content,
        actions: Content,
        now: str,
        notes: Iterable[Content],
    ) -> None:
        """Draw all but board and conversation.

        Args:
            result: what came of the last action.
            actions: the actions, or the sentence in their place.
            now: what a key does now.
            notes: a line each.
        """
        self.query_one("#play-header", Words).update(header)
        self.query_one("#play-result", Words).update(result)
        choices = Content("\n").join([actions, Content.styled(now, ASIDE)])
        self.query_one("#play-choices", Words).update(choices)
        self.query_one("#play-notes", Words).update(Content("\n").join(notes))
        self.refresh_bindings()

    @property
    def how_to_choose(self) -> str:
        arrows = {name for names in ARROWS.values() for name in names}
        has_arrows = any(choice.name in arrows for choice in self.choices)
        return f"a key takes its action at once{', arrow keys too' if has_arrows else ''}"


def choices_row(choices: Sequence[OfferedAction], width: int, chosen: object = None) -> Content:
    """The actions on their keys, each whole on a line; the chosen one is marked, and each can be clicked."""
    lines = [Content("")]
    for index, choice in enumerate(choices):
        is_chosen = choice.action == chosen
        name = f" ▶ {one_line(choice.name)} ◀" if is_chosen else f" {one_line(choice.name)}"
        cell = Content.assemble(
            (f" {one_line(choice.key)} ", KEY), (name, "bold" if is_chosen else "")
        )
        cell = cell.stylize(Style.from_meta({"@click": f"screen.choose({index})"}))
        if not lines[-1]:
            lines[-1] = cell
        elif lines[-1].cell_length + len(BETWEEN) + cell.cell_length <= width:
            lines[-1] += BETWEEN + cell
        else:
            lines.append(cell)
    return Content("\n").join(lines)


def would_do(names: Sequence[str], shares: Sequence[float], width: int) -> Content:
    """What the model would do, on a line."""
    likely = likely_actions(names, shares, MOST_BARS)
    return Content.assemble(("the model   ", ASIDE), likely).truncate(width, ellipsis=True)
