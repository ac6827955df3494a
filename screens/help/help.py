"""Help: the keys of a screen and what the figures mean (?), and what the focused widget is for (F1).

Rows are read from the active bindings, so a key that a person moved is shown where it is now. What a widget is for
stands in its `HELP`, what a key does in its binding's tooltip.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from textwrap import dedent
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from llamagym_tui.protocol.literal import literal
from llamagym_tui.screens.help.keys_toml import FILE
from llamagym_tui.screens.metrics.figure_texts import FIGURES
from llamagym_tui.screens.widgets.key_bar import moved_key
from llamagym_tui.screens.widgets.look import ASIDE, plot_colors
from llamagym_tui.screens.widgets.sizes import Fitted
from llamagym_tui.user_files import config_dir

if TYPE_CHECKING:
    from rich.table import Table

NAME_WIDTH = 15
PLUS_MINUS = "Half the width of a mean return's 95 % confidence interval: 1.96 standard errors."


class Row(NamedTuple):
    name: str
    meaning: str
    id: str = ""
    """Under which a key can be moved."""


Section = list[Row] | Content


def key_rows(screen: Screen[Any], wanted: Callable[[DOMNode, Binding], bool]) -> list[Row]:
    """The wanted keys of a screen, those of one action together.

    Disabled ones are listed too, unless the screen's `SHOWS_DIM_KEYS` states that they never do anything.
    """
    dim_too = getattr(screen, "SHOWS_DIM_KEYS", True)
    rows: dict[tuple[DOMNode, str], Row] = {}
    for node, binding, enabled, tooltip in screen.active_bindings.values():
        meaning = tooltip or binding.description
        if meaning and (enabled or dim_too) and wanted(node, binding):
            key, same = screen.app.get_key_display(binding), rows.get((node, binding.action))
            rows[node, binding.action] = Row(f"{same.name} {key}" if same else key, meaning, binding.id or "")
    return list(rows.values())


class HelpRows(Widget):
    """Names on the left, meanings on the right; a long meaning continues under itself."""

    DEFAULT_CSS = "HelpRows { width: auto; max-width: 100%; height: auto; }"

    def __init__(self, rows: list[Row]) -> None:
        super().__init__()
        self.rows = rows

    def render(self) -> Table:
        from rich.style import Style
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(
            width=NAME_WIDTH, style=Style(color=plot_colors(self.app.theme_variables)["primary"], bold=True)
        )
        for row in self.rows:
            table.add_row(*(Text(literal(text)) for text in (row.name, row.meaning)))
        return table


class HelpDialog(Fitted[None], ModalScreen[None]):
    """Keys, then figures."""

    CSS_PATH = "../widgets/dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,f1", "dismiss", "Close", tooltip="Back.")
    ]
    TITLE_TEXT = "help"

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__()
        self._sections = self.sections(screen)

    def sections(self, screen: Screen[Any]) -> list[Section]:
        keys = [
            *key_rows(screen, lambda node, binding: isinstance(node, Screen) and binding.show),
            # Those without room in the bottom row; Textual's own have no tooltip.
            *key_rows(
                screen, lambda node, binding: isinstance(node, Screen) and not binding.show and bool(binding.tooltip)
            ),
        ]
        key = partial(moved_key, screen.app)
        follow, older, newer = key("follow", "end or G"), key("search.older", "n"), key("search.newer", "N")
        conversation = [
            Row("↑ ↓ pgup pgdn", f"Scroll; {follow} follows the conversation again."),
            Row(key("search", "/"), f"Search the conversation; {older}: older, {newer}: newer."),
        ]
        more = [
            *(conversation if screen.query("ConversationPane") else []),
            Row("ctrl+p", "Search all commands that can be used now."),
            Row(key("focus_help", "F1"), "What the focused widget is for."),
        ]
        figures = [Row(text.short, text.meaning) for text in list(FIGURES.values())[:11]]
        figures.insert(1, Row("±", PLUS_MINUS))
        names = " · ".join(dict.fromkeys(f"{row.name} {row.id}" for row in keys if row.id))
        file = literal(str(config_dir() / FILE))
        return [[*keys, *more], figures, Content.styled(f"To move a key, write its name into {file}: {names}", ASIDE)]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = Content(self.TITLE_TEXT)
            dialog.border_subtitle = "escape closes"
            for section in self._sections:
                yield Static(section, markup=False) if isinstance(section, Content) else HelpRows(section)


class FocusHelp(HelpDialog):
    """What the focused widget is for, and its own keys."""

    TITLE_TEXT = "help on this"

    def sections(self, screen: Screen[Any]) -> list[Section]:
        """`HELP` of the focused widget and what it stands in, keys with a tooltip, then Textual's own keys."""
        focused = screen.focused
        chain: list[DOMNode] = [screen] if focused is None else list(focused.ancestors_with_self)
        texts = [dedent(text).strip() for node in chain if (text := getattr(node, "HELP", None))]
        own = key_rows(screen, lambda node, binding: bool(binding.tooltip))
        others = key_rows(screen, lambda node, binding: not binding.tooltip and not isinstance(node, Screen))
        purpose: list[Section] = [Content(literal("\n\n".join(texts)))] if texts else []
        return [*purpose, *[rows for rows in (own, others) if rows]]
