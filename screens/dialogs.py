"""Small dialogs: the question before leaving, and what the keys and figures mean."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.screens.widgets.literal import literal

KEYS = (
    ("space", "pause, and go on"),
    ("t", "train, or inference, where nothing is trained"),
    ("p", "edit the system prompt of the next episodes"),
    ("h", "play yourself; episodes become demonstrations"),
    ("↑ ↓ pgup pgdn", "scroll; end follows the conversation again"),
    ("q", "quit; a checkpoint is written"),
)
FIGURES = (
    ("return", "mean of this mode and prompt ± standard error"),
    ("KL", "nats a token that the update moved the policy"),
    ("KL ref", "nats a token from the model it began as"),
    ("entropy", "nats a token; act. entr.: nats an action"),
    ("clip frac", "share of tokens whose ratio PPO clipped"),
    ("expl. var", "share of the returns that the critic foresees"),
    ("parse fail", "share of turns whose reply named no action"),
    ("ratio error", "0 up to rounding, or something is broken"),
)


class QuitDialog(ModalScreen[bool]):
    """Asks before leaving; dismissed with whether to leave."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter,q", "answer(True)", "Leave"),
        Binding("n,escape", "answer(False)", "Stay"),
    ]

    def __init__(self, reasons: list[str]) -> None:
        """A question.

        Args:
            reasons: a sentence each on what leaving means.
        """
        super().__init__()
        self._reasons = reasons

    def compose(self) -> ComposeResult:
        """The reasons and the two answers."""
        keys = Content.assemble((" y ", "bold reverse"), " leave   ", (" n ", "bold reverse"), " stay")
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "quit?"
            yield Static(Content("\n\n").join([*(Content(literal(reason)) for reason in self._reasons), keys]))

    def action_answer(self, leave: bool) -> None:
        """Leave or stay."""
        self.dismiss(leave)


class ConfirmDialog(ModalScreen[bool]):
    """Asks before something that cannot be taken back; dismissed with the answer."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, title: str, question: str, *, yes: str, no: str) -> None:
        """A question.

        Args:
            title: in a word or two.
            question: what yes means.
            yes: what is done then, in a word or two.
            no: the other way.
        """
        super().__init__()
        self._title, self._question, self._yes, self._no = title, question, yes, no

    def compose(self) -> ComposeResult:
        """The question and its two answers."""
        keys = Content.assemble((" y ", "bold reverse"), f" {self._yes}   ", (" n ", "bold reverse"), f" {self._no}")
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = self._title
            yield Static(Content("\n\n").join([Content(literal(self._question)), keys]))

    def action_answer(self, yes: bool) -> None:
        """Do it, or leave it."""
        self.dismiss(yes)


class HelpDialog(ModalScreen[None]):
    """Says what the keys and figures mean."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "close", "Close")]

    def compose(self) -> ComposeResult:
        """Two short tables."""
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "help"
            dialog.border_subtitle = "escape closes"
            yield Static(Content("\n\n").join([_table(KEYS), _table(FIGURES)]))

    def action_close(self) -> None:
        """Back."""
        self.dismiss()


def _table(rows: tuple[tuple[str, str], ...]) -> Content:
    return Content("\n").join([Content.assemble((f"{name:<15}", "bold $primary"), meaning) for name, meaning in rows])
