"""Inputs into which no control characters can be pasted; the lines of a paste become words of one line."""

from collections.abc import Callable
from typing import Any

from textual.events import Paste
from textual.widgets import Input

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.keys_in_order import KeysInOrder
from llamagym_tui.screens.widgets.look import own_styles


class OneLineInput(Input, KeysInOrder):
    def __init__(
        self, value: str = "", *, may_submit: Callable[[], bool] = lambda: True, **options: Any
    ) -> None:
        """A field on which enter does something only while `may_submit()`."""
        super().__init__(value, **options)
        self._may_submit = may_submit

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return (
            super().check_action(action, parameters)
            if action != "submit" or self._may_submit()
            else None
        )

    def _on_paste(self, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        self.replace(one_line(event.text), *self.selection)


class SentenceInput(OneLineInput):
    DEFAULT_CSS = own_styles(__file__)
