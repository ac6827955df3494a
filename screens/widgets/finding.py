"""Screens in which `/` opens a field whose words choose among what is listed; escape closes it, then the screen."""

from typing import ClassVar

from textual.widget import Widget

from llamagym_tui.screens.widgets.sentence_input import SentenceInput
from llamagym_tui.screens.widgets.sizes import Fitted


class Finding(Fitted[None]):
    FOUND_IN: ClassVar[type[Widget]]
    """What has the focus while the field is closed."""

    def action_find(self) -> None:
        self.add_class("-finding")
        self.query_one(SentenceInput).focus()

    def action_back(self) -> None:
        if not self.has_class("-finding"):
            self.dismiss()
        else:
            self.close_field()

    def close_field(self) -> None:
        """Show all of the list again, without the field."""
        self.remove_class("-finding")
        self.query_one(SentenceInput).value = ""
        self.query_one(self.FOUND_IN).focus()
