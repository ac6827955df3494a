"""The token inspector (key `i`): a reply token by token, as it was sampled and as it is scored now."""

from typing import NamedTuple

from rich.cells import set_cell_size
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Static

from llamagym_tui.protocol.commands import InspectTurn
from llamagym_tui.protocol.events import (
    TurnInspected,
)
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.inspector import texts
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fitted import TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.state.run import RunState
from llamagym_tui.state.transcript import ReplySoFar

ROOMY = 80
"""Columns of the screen from which the tokens have a wide column."""


class TurnPlace(NamedTuple):
    episode: int
    turn: int


class TokenTable(DataTable[Text]):
    HELP = texts.MEANING

    def show(self, table: texts.Table, name_width: int) -> None:
        at = self.cursor_row if self.row_count else table.first
        self.clear(columns=True)
        self.add_column(" ", width=1)
        self.add_column(table.name, width=name_width)
        for title, width in texts.NUMBERS:
            self.add_column(Text(title, justify="right"), width=width)
        for row in table.rows:
            name = Text(set_cell_size(row.name, name_width).rstrip())
            numbers = [Text(value, justify="right") for value in row.numbers]
            self.add_row(Text(row.mark), name, *numbers)
        self.move_cursor(row=min(at, max(self.row_count - 1, 0)))


class InspectorScreen(Screen[None]):
    CSS_PATH = "inspector.tcss"
    BINDING_GROUP_TITLE = "Inspector"
    # With priority, or the table would take the arrows.
    BINDINGS = [
        Binding(
            "left_square_bracket,left",
            "turn(-1)",
            "Previous reply",
            tooltip="The previous reply of the episode.",
            id="inspector.previous",
            key_display="[",
            priority=True,
        ),
        Binding(
            "right_square_bracket,right",
            "turn(1)",
            "Next reply",
            tooltip="The next reply of the episode.",
            id="inspector.next",
            key_display="]",
            priority=True,
        ),
        Binding(
            "question_mark",
            "app.help",
            "Help",
            tooltip="Explain keys and figures.",
            id="help",
            key_display="?",
        ),
        Binding(
            "escape,i,q",
            "dismiss",
            "Back",
            tooltip="Back to the run.",
            id="inspector.back",
        ),
    ]

    def __init__(self, state: RunState, place: TurnPlace) -> None:
        super().__init__()
        self._state = state
        self._place = place
        self._updates = state.updates
        self._drawn: tuple[object, ...] = ()
        self._rows: list[texts.InspectedRow] = []

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield Static(id="inspector-headline", markup=False)
        with Container(id="inspector-body"):
            yield TokenTable(cursor_type="row", id="tokens")
            with VerticalScroll(id="inspector-detail"):
                yield Static(id="inspector-text", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._ask()
        self.show(self._state)

    def on_resize(self) -> None:
        self._draw()

    def show(self, state: RunState) -> None:
        self._state = state
        if state.recorded and (found := state.inspection.found) is not None:
            self._place = TurnPlace(found.episode, found.turn)
        if state.updates != self._updates:
            self._updates = state.updates
            self._ask()
        self._draw()

    @property
    def _found(self) -> TurnInspected | None:
        return self._state.inspection.of(*self._place)

    @property
    def _turns(self) -> int:
        """Known replies of the episode."""
        found = self._state.inspection.found
        return found.turns if found is not None and found.episode == self._place.episode else 0

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        title = texts.headline(self._state.inspection, *self._place, is_live=self._state.live)
        self.query_one("#inspector-headline", Static).update(title)
        width = texts.WIDE_NAME if self.size.width >= ROOMY else texts.NARROW_NAME
        shown = (self._found, self._place, self._turns, self._state.live, width)
        if self._drawn == shown:
            return
        self._drawn = shown
        self.refresh_bindings()
        self._rows = []
        self.query_one("#inspector-text", Static).update("")
        if self._found is None:
            self.query_one(TokenTable).clear()
            return
        table = texts.table(self._found)
        self._rows = table.rows
        self.query_one(TokenTable).show(table, width)
        self._show_row()

    @on(DataTable.RowHighlighted)
    def _show_row(self) -> None:
        row = self.query_one(TokenTable).cursor_row
        if row < len(self._rows):
            self.query_one("#inspector-text", Static).update(self._rows[row].detail)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action != "turn" or not isinstance(by := parameters[0], int):
            return True
        return True if self._state.live and 0 <= self._place.turn + by < self._turns else None

    def action_turn(self, by: int) -> None:
        self._place = TurnPlace(self._place.episode, self._place.turn + by)
        self._ask()
        self._draw()

    def _ask(self) -> None:
        if self._state.live:
            self.post_message(
                CommandAsked(InspectTurn(episode=self._place.episode, turn=self._place.turn))
            )


def open_inspector(view: ConversationView, state: RunState) -> None:
    """Open the inspector on the marked reply, else on the newest."""
    facts = (each.fact for each in reversed(view.entries))
    newest = next((fact for fact in facts if isinstance(fact, ReplySoFar)), None)
    about: ReplySoFar | TurnInspected | None = view.marked or newest
    if state.recorded or about is None:
        about = state.inspection.found
    if about is not None:
        view.app.push_screen(InspectorScreen(state, TurnPlace(about.episode, about.turn)))
