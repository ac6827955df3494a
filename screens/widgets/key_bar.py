"""The bottom row of keys, drawn by one widget.

Textual's `Footer` mounts a widget for each key, and all of them again whenever a key changes: 67 ms on the playground
where this row takes 8 (Textual 8.2, 120x34, median of nine).
"""

from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.binding import ActiveBinding, Binding
from textual.content import Content
from textual.dom import DOMNode
from textual.events import MouseUp
from textual.style import Style
from textual.widget import Widget

from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.user_files import browser_session

KeyOf = Callable[[str, str], str]
"""Names the key of a binding, from its id and its default name."""
KEPT = 2
"""Number of keys at the end that are always shown: help and the way out."""
GAP = Content("  ")
MORE = "…"
"""Stands for keys without room; a click on it opens the palette."""


class KeyBar(Widget):
    ALLOW_SELECT = False
    DEFAULT_CSS = own_styles(__file__)

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    @property
    def keys(self) -> list[ActiveBinding]:
        """The first key of each action in the row."""
        shown: dict[str, ActiveBinding] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            owner, action, _ = self.app._parse_action(binding.action, active.node)
            if binding.show and not is_refused(owner, action):
                shown.setdefault(binding.action, active)
        return list(shown.values())

    def render(self) -> Content:
        """Keys in a row, disabled ones dim; where room is short the last two stay, and `MORE` stands for the rest."""
        cells = self._cells()
        last = cells[-KEPT:]
        room = self.content_size.width - sum(cell.cell_length + len(GAP) for cell in last)
        row: list[Content] = []
        for cell in cells[:-KEPT]:
            room -= cell.cell_length + len(GAP)
            if room < len(MORE):
                row.append(_clickable(MORE, "$aside", self.app.COMMAND_PALETTE_BINDING))
                break
            row.append(cell)
        return GAP.join([*row, *last])

    def _cells(self) -> list[Content]:
        """A key and its description each."""
        cells = []
        for _, binding, enabled, _ in self.keys:
            name = self.app.get_key_display(binding)
            key_style, style = ("bold $primary", "$foreground") if enabled else ("$aside", "$aside")
            words = _clickable(f" {binding.description}", style, binding.key)
            cells.append(_clickable(name, key_style, binding.key) + words)
        return cells

    def on_mouse_up(self, event: MouseUp) -> None:
        if key := event.style.meta.get("key"):
            self.app.simulate_key(key)


def _clickable(text: str, style: str, key: str) -> Content:
    return Content.styled(text, style).stylize(Style.from_meta({"key": key}))


def key_of(app: App[Any], id: str, usual: str) -> str:
    """Name of a binding's key, which a person may have moved; `usual` is the name of its default key."""
    keys = app._keymap.get(id)
    shown = app.get_key_display(Binding(keys.split(",")[0], "", "")) if keys else usual
    return f"ctrl+{shown[1:]}" if len(shown) > 1 and shown[0] == "^" else shown


def is_refused(owner: DOMNode, action: str) -> bool:
    """True if this session of `llamagym-tui serve` may not do an action.

    `REFUSED_IN_BROWSER` of a class has its refused actions by the kind of session: ``play``, ``seat`` or ``watch``.
    """
    session = browser_session()
    refused = (vars(kind).get("REFUSED_IN_BROWSER", {}) for kind in type(owner).__mro__)
    return any(action in each.get(session, ()) for each in refused)
