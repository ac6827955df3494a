"""Help: the keys of a screen and what the figures mean (?), and what the focused widget is for (F1)."""

from collections.abc import Callable
from functools import partial
from textwrap import dedent
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from llamagym_tui.config import FIGURES
from llamagym_tui.protocol.literal import literal
from llamagym_tui.screens.help.all_bindings import bindings_of
from llamagym_tui.screens.help.help_text import HelpRow, HelpText, Section
from llamagym_tui.screens.help.keys_toml import FILE
from llamagym_tui.screens.widgets.finding import Finding
from llamagym_tui.screens.widgets.kept_screen import KeptScreen
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.sentence_input import SentenceInput
from llamagym_tui.user_files import config_dir

PLUS_MINUS = "Half the width of a mean return's 95 % confidence interval: 1.96 standard errors."


def key_rows(
    screen: Screen[Any], wanted: Callable[[DOMNode, Binding], bool], *, dim_too: bool = True
) -> list[HelpRow]:
    """The wanted keys of a screen, those of one action together.

    Disabled ones are listed if they are wanted `dim_too`, unless the screen's `SHOWS_DIM_KEYS` states that they never
    do anything.
    """
    dim_too = dim_too and getattr(screen, "SHOWS_DIM_KEYS", True)
    rows: dict[tuple[DOMNode, str], HelpRow] = {}
    for node, binding, enabled, tooltip in screen.active_bindings.values():
        meaning = tooltip or binding.description
        if meaning and (enabled or dim_too) and wanted(node, binding):
            key, same = (
                screen.app.get_key_display(Binding(binding.key, "", "")),
                rows.get((node, binding.action)),
            )
            rows[node, binding.action] = HelpRow(
                f"{same.name} {key}" if same else key, meaning, binding.id or ""
            )
    return list(rows.values())


def _is_own(shown: bool, node: DOMNode, key: Binding) -> bool:
    """Whether a key is the screen's own, in the bottom row or not; Textual's have no tooltip."""
    return isinstance(node, Screen) and bool(key.tooltip) and key.show == shown


def _own_rows(node: Widget) -> list[HelpRow]:
    """The keys that a widget of ours adds, whether it has the focus or not."""
    rows: dict[str, HelpRow] = {}
    for binding in bindings_of(type(node)):
        if binding.tooltip:
            key = key_of(node.app, binding.id or "", node.app.get_key_display(binding))
            keys = rows[binding.action].name.split() if binding.action in rows else []
            if key not in keys:
                keys.append(key)
            rows[binding.action] = HelpRow(" ".join(keys), binding.tooltip, binding.id or "")
    return list(rows.values())


def _of_now(screen: Screen[Any]) -> list[HelpRow]:
    """The few keys that matter most at this moment, as the screen names them by their ids."""
    rows = {row.id: row for row in key_rows(screen, lambda node, key: bool(key.id), dim_too=False)}
    return [rows[id] for id in getattr(screen, "moment", ()) if id in rows]


def figure_rows() -> list[HelpRow]:
    """What the figures mean that the help explains, and the ± of the first of them."""
    rows = [HelpRow(figure.short, figure.meaning) for figure in FIGURES.values() if figure.in_help]
    rows.insert(1, HelpRow("±", PLUS_MINUS))
    return rows


class HelpDialog(Finding, KeptScreen, ModalScreen[None]):
    """Keys, then figures."""

    FOUND_IN = VerticalScroll
    CSS_PATH = "../widgets/dialogs.tcss"
    BINDINGS = [
        Binding("question_mark,q,enter,f1", "dismiss", "Close", tooltip="Back."),
        Binding("escape", "back", "Back", tooltip="Back; from a search, to all of the help."),
        Binding(
            "slash", "find", "Find", tooltip="Find a key or a figure by words.", id="help.find"
        ),
    ]
    TITLE_TEXT = "help"

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__(screen)
        self._sections = self.sections(screen)

    def reopen(self, of: Screen[Any]) -> None:
        """Show the help of another screen from its beginning, all of it."""
        self._sections = self.sections(of)
        self.close_field()
        self.query_one(HelpText).show(self._sections)
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def sections(self, screen: Screen[Any]) -> list[Section]:
        """The keys of the screen in its groups, those of its parts, and its figures where it has some."""
        groups: dict[str, tuple[str, ...]] = getattr(screen, "HELP_GROUPS", {})
        titles = {id: title for title, ids in groups.items() for id in ids}
        rest = screen.BINDING_GROUP_TITLE or "Here"
        found: dict[str, list[HelpRow]] = {"Now": _of_now(screen)}
        found |= {title: [] for title in (rest, *groups)}
        # Those in the bottom row come first.
        for shown in (True, False):
            for row in key_rows(screen, partial(_is_own, shown)):
                found[titles.get(row.id, rest)].append(row)
        for node in screen.query("*"):
            if rows := _own_rows(node):
                found.setdefault(node.BINDING_GROUP_TITLE or rest, []).extend(rows)
        focus = key_of(screen.app, "focus_help", "F1")
        found["Everywhere"] = [
            HelpRow("ctrl+p", "Search all commands that can be used now."),
            HelpRow(focus, "What the focused widget is for."),
            HelpRow(
                key_of(screen.app, "app.screen", "Y"),
                "Save the screen as an SVG file.",
                "app.screen",
            ),
        ]
        names = " · ".join(
            dict.fromkeys(
                f"{row.name} {row.id}" for rows in found.values() for row in rows if row.id
            )
        )
        if screen.query("Figures, FigureList"):
            found["Figures"] = figure_rows()
        titled = [[HelpRow(title, ""), *rows] for title, rows in found.items() if rows]
        file = literal(str(config_dir() / FILE))
        return [
            *titled,
            Content.styled(f"To move a key, write its name into {file}: {names}", ASIDE),
        ]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = Content(self.TITLE_TEXT)
            dialog.border_subtitle = "/ finds, escape closes"
            yield SentenceInput(id="help-words", placeholder="words of a key or a figure")
            yield HelpText(self._sections)

    @on(SentenceInput.Changed)
    def filter(self, message: SentenceInput.Changed) -> None:
        message.stop()
        self.query_one(HelpText).filter(message.value.lower().split())

    @on(SentenceInput.Submitted)
    def read(self) -> None:
        self.query_one(VerticalScroll).focus()


class FocusHelp(HelpDialog):
    """What the focused widget is for, and its own keys."""

    TITLE_TEXT = "help on this"

    def sections(self, screen: Screen[Any]) -> list[Section]:
        """`HELP` of the focused widget and what it stands in, keys with a tooltip, then Textual's own keys."""
        focused = screen.focused
        chain: list[DOMNode] = [screen] if focused is None else list(focused.ancestors_with_self)
        texts = [dedent(text).strip() for node in chain if (text := getattr(node, "HELP", None))]
        own = key_rows(screen, lambda node, binding: bool(binding.tooltip))
        others = key_rows(
            screen, lambda node, binding: not binding.tooltip and not isinstance(node, Screen)
        )
        purpose: list[Section] = [Content(literal("\n\n".join(texts)))] if texts else []
        return [*purpose, *[rows for rows in (own, others) if rows]]
