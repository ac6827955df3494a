"""The dialog for the least return of the model's watched episodes that are kept automatically."""

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.validation import Number
from textual.widgets import Input, Static

from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of, own_keys
from llamagym_tui.screens.widgets.sentence_input import SentenceInput


class KeepRuleDialog(ModalScreen[tuple[float | None] | None]):
    """Dismissed with the return in a tuple (None in it: keep no episode automatically), or None if nothing changes."""

    CSS_PATH = ["../widgets/dialogs.tcss", "keep_rule.tcss"]
    BINDINGS = own_keys(__file__)

    def __init__(self, rule: float | None) -> None:
        super().__init__()
        self._rule = rule

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as frame:
            frame.border_title = "keep by rule"
            frame.border_subtitle = "enter applies · escape cancels"
            yield Static(
                "Keep every watched episode of the model whose return is at least:", markup=False
            )
            yield SentenceInput(
                "" if self._rule is None else f"{self._rule:g}",
                placeholder=f"a number; nothing: only those that {key_of(self.app, 'keep', 'k')} keeps",
                validators=[Number()],
                valid_empty=True,
            )
        yield KeyBar()

    @on(Input.Submitted)
    def apply(self, message: Input.Submitted) -> None:
        if message.validation_result is None or message.validation_result.is_valid:
            self.dismiss((float(message.value) if message.value else None,))
