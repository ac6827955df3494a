"""The line in which one searches a conversation: a text, and which match of how many is seen."""

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.screens.widgets.sentence_input import SentenceInput


class SearchLine(Horizontal):
    DEFAULT_CSS = own_styles(__file__)

    def __init__(self, view: ConversationView) -> None:
        super().__init__()
        self._view = view

    def compose(self) -> ComposeResult:
        yield Static("/", classes="slash", markup=False)
        yield SentenceInput(placeholder="search; ↑ ↓ go through the matches, enter leaves the line")
        yield Static("", classes="status", markup=False)

    def on_mount(self) -> None:
        self.take_focus()

    def take_focus(self) -> None:
        self.query_one(Input).focus()

    def show(self, status: str) -> None:
        self.query_one(".status", Static).update(one_line(status))

    @on(Input.Changed)
    def look_for_it(self, message: Input.Changed) -> None:
        message.stop()
        self._view.find(message.value)

    @on(Input.Submitted)
    def leave_the_line(self, message: Input.Submitted) -> None:
        message.stop()
        self._view.focus()
