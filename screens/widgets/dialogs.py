"""Small dialogs that ask: before leaving, and before what cannot be taken back."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.style import Style
from textual.widgets import Static

from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.literal import literal

YES, NO = "y ⏎", "n esc"
"""The keys of the answers as the bottom row shows them."""


class QuitDialog(ModalScreen[bool]):
    """Asks before leaving; dismissed with whether to leave."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter,q", "answer(True)", "Leave", key_display=YES),
        Binding("n,escape", "answer(False)", "Stay", key_display=NO),
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
        keys = answers("leave", "stay")
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "quit?"
            yield Static(Content("\n\n").join([*(Content(literal(reason)) for reason in self._reasons), keys]))
        yield KeyBar()

    def action_answer(self, leave: bool) -> None:
        """Leave or stay."""
        self.dismiss(leave)


class ConfirmDialog(ModalScreen[bool]):
    """Asks before something that cannot be taken back; dismissed with the answer."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes", key_display=YES),
        Binding("n,escape,q", "answer(False)", "No", key_display=NO),
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
        keys = answers(self._yes, self._no)
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = self._title
            yield Static(Content("\n\n").join([Content(literal(self._question)), keys]))
        yield KeyBar()

    def action_answer(self, yes: bool) -> None:
        """Do it, or leave it."""
        self.dismiss(yes)


def answers(yes: str, no: str) -> Content:
    """Two answers by their keys; a click gives one, too."""
    told = [
        Content.assemble((f" {key} ", "bold reverse"), f" {literal(words)}").stylize(
            Style.from_meta({"@click": f"screen.answer({answer})"})
        )
        for key, words, answer in (("y", yes, True), ("n", no, False))
    ]
    return Content("   ").join(told)
