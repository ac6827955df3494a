"""The dialog that asks from which return on every watched episode of the model is kept."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.validation import Number
from textual.widgets import Input, Static

from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.sentence_input import SentenceInput


class KeepRuleDialog(ModalScreen[tuple[float | None] | None]):
    """Asks for a return; dismissed with it alone in a tuple (None: keep by hand), or with None if all is to stay."""

    CSS_PATH = "keep_rule.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stay", "Back", tooltip="Leave the rule as it is.", id="keep_rule.stay"),
    ]

    def __init__(self, rule: float | None) -> None:
        """A dialog.

        Args:
            rule: the return from which episodes are kept now; None: none are.
        """
        super().__init__()
        self._rule = rule

    def compose(self) -> ComposeResult:
        """A question and a field."""
        with Vertical(id="keep-rule") as frame:
            frame.border_title = "keep by rule"
            frame.border_subtitle = "enter applies · escape leaves it"
            yield Static("Keep every watched episode of the model whose return is at least:", markup=False)
            yield SentenceInput(
                "" if self._rule is None else f"{self._rule:g}",
                placeholder=f"a number; nothing: only those that {key_of(self, 'keep', 'k')} keeps",
                validators=[Number()],
                valid_empty=True,
            )
        yield KeyBar()

    @on(Input.Submitted)
    def apply(self, message: Input.Submitted) -> None:
        """Apply a number, or its absence."""
        if message.validation_result is None or message.validation_result.is_valid:
            self.dismiss((float(message.value) if message.value else None,))

    def action_stay(self) -> None:
        """Back."""
        self.dismiss(None)
