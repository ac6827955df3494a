"""Help: what the focused part of a screen is for, and the keys that do something there.

Textual's `HelpPanel` lists the keys of lists and scroll bars among ours, and only a mouse scrolls it.
"""

from textwrap import dedent
from typing import Any

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static


class HelpDialog(ModalScreen[None]):
    CSS_PATH = "dialogs.tcss"
    BINDINGS = [Binding("escape,q,enter,question_mark", "dismiss", "Close")]

    def __init__(self, of: Screen[Any]) -> None:
        """Help on a screen as it is now."""
        super().__init__()
        self._of = of

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "help"
            dialog.border_subtitle = "escape closes"
            yield Static(self._purpose(), markup=False)
            yield Static(self._keys(), markup=False)

    def _purpose(self) -> str:
        """`HELP` of the focused widget and of what it stands in."""
        focused = self._of.focused or self._of
        texts = [getattr(node, "HELP", None) for node in focused.ancestors_with_self]
        return "\n\n".join(dedent(text).strip() for text in texts if text)

    def _keys(self) -> Table:
        """Keys with a tooltip, those of one action together, under the name of what binds them."""
        rows: dict[tuple[str, str], list[str]] = {}
        for node, binding, _, tooltip in self._of.active_bindings.values():
            if tooltip and not binding.system:
                title = node.BINDING_GROUP_TITLE or "Everywhere"
                keys = rows.setdefault((title, tooltip), [])
                keys.append(self.app.get_key_display(binding))
        table = Table.grid(padding=(0, 1))
        shown = ""
        for (title, tooltip), keys in rows.items():
            if title != shown:
                shown = title
                table.add_row("")
                table.add_row(title, style="bold")
            table.add_row(" ".join(keys), tooltip)
        return table
