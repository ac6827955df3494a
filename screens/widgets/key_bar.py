"""The bottom row: the keys that do something now, drawn by one widget because the first frame waits for it.

Textual's `Footer` mounts a widget for each key after the first paint. Here too a key can be clicked and has a
tooltip. `key_of` names a key in sentences, where a person may have moved it.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from textual.app import App
from textual.binding import ActiveBinding, Binding
from textual.content import Content
from textual.dom import DOMNode
from textual.events import MouseMove, MouseUp
from textual.style import Style
from textual.widget import Widget

from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.screens.widgets.refused import is_refused

KeyOf = Callable[[str, str], str]
"""Names the key of a binding, from its id and its default name."""
KEPT = 2
"""Keys at the end that are always shown: help, and the way out."""
GAP = 2
"""Cells between two keys."""
APART = " │ "
"""Between two groups of keys."""
MORE = "…"
"""Stands for keys without room; a click on it opens the palette, which has them all."""


class Key(NamedTuple):
    key: str
    shown: str
    description: str
    tooltip: str
    enabled: bool
    group: Binding.Group | None = None
    """Keys of one group stand together; those of a compact one are one word with a description in common, which
    stands with the group before it."""

    @property
    def is_compact(self) -> bool:
        return self.group is not None and self.group.compact


class KeyBar(Widget):
    ALLOW_SELECT = False
    DEFAULT_CSS = own_styles(__file__)

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    @property
    def keys(self) -> list[Key]:
        shown: dict[str, Key] = {}
        active = list(self.screen.active_bindings.values())
        for node, binding, enabled, tooltip in _as_declared(active) if self.app._keymap else active:
            if (
                binding.show
                and binding.action not in shown
                and not is_refused(*self.app._parse_action(binding.action, node))
            ):
                name, description = self.app.get_key_display(binding), binding.description
                shown[binding.action] = Key(
                    binding.key, name, description, tooltip or description, enabled, binding.group
                )
        return list(shown.values())

    def render(self) -> Content:
        """Keys in a row, disabled ones dim; where room is short the last two stay, and `MORE` stands for the rest."""
        cells = _cells(self.keys)
        last = cells[-KEPT:]
        room = self.content_size.width - sum(cell.cell_length for cell in last)
        row: list[Content] = []
        for cell in cells[:-KEPT]:
            more = 0 if cell is cells[-KEPT - 1] else len(MORE) + GAP
            if sum(shown.cell_length for shown in row) + cell.cell_length + more > room:
                meta = Style.from_meta(
                    {"key": self.app.COMMAND_PALETTE_BINDING, "tooltip": "Search all commands."}
                )
                row.append(Content(" " * GAP) + Content.styled(MORE, "$aside").stylize(meta))
                break
            row.append(cell)
        return Content("").join([*row, *last])

    def on_mouse_move(self, event: MouseMove) -> None:
        tip = event.style.meta.get("tooltip")
        self.tooltip = Content(tip) if tip else None

    def on_leave(self) -> None:
        self.tooltip = None

    def on_mouse_up(self, event: MouseUp) -> None:
        if key := event.style.meta.get("key"):
            self.app.simulate_key(key)


def _as_declared(active: list[ActiveBinding]) -> list[ActiveBinding]:
    """Bindings in the order in which their classes have them: Textual puts moved ones last."""
    in_order: dict[DOMNode, Iterator[ActiveBinding]] = {}
    for node in {each.node for each in active}:
        rank = {
            action: at
            for at, action in enumerate(
                dict.fromkeys(binding.action for _, binding in node._bindings)
            )
        }
        own = [each for each in active if each.node is node]
        in_order[node] = iter(
            sorted(own, key=lambda each: rank.get(each.binding.action, len(rank)))
        )
    return [next(in_order[each.node]) for each in active]


def key_of(app: App[Any], id: str, usual: str) -> str:
    """Name of the key that a binding has, whether it does something now or not; `usual` if nobody has moved it."""
    keys = app._keymap.get(id)
    shown = app.get_key_display(Binding(keys.split(",")[0], "", "")) if keys else usual
    return f"ctrl+{shown[1:]}" if len(shown) > 1 and shown[0] == "^" else shown


def _cells(keys: list[Key]) -> list[Content]:
    """Each key, and those of a compact group together, after what sets it apart from the one before."""
    cells: list[Content] = []
    group: Binding.Group | None = None
    """The group that the last key stands in."""
    for at, key in enumerate(keys):
        before = keys[at - 1] if at else None
        if key.is_compact and before is not None and before.group == key.group:
            continue  # it stands in the cell of the first one
        cell = _cell(
            [each for each in keys if each.group == key.group] if key.is_compact else [key]
        )
        is_apart = not key.is_compact and key.group != group
        if not key.is_compact:
            group = key.group
        if before is not None:
            cell = Content.styled(APART, "$aside") + cell if is_apart else Content(" " * GAP) + cell
        cells.append(cell)
    return cells


def _cell(keys: list[Key]) -> Content:
    first = keys[0]
    words = (
        first.group.description if first.group is not None and len(keys) > 1 else first.description
    )
    style = "$foreground" if any(key.enabled for key in keys) else "$aside"
    parts: list[Content] = []
    for key in keys:
        name = Content.styled(key.shown, "bold $primary" if key.enabled else "$aside")
        parts.append(name.stylize(_meta(key)))
    description = Content.styled(f" {words}", style).stylize(_meta(first))
    return Content("/").join(parts) + description


def _meta(key: Key) -> Style:
    return Style.from_meta({"key": key.key, "tooltip": key.tooltip})
