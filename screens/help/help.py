"""Help: which keys do something on a screen and what the figures mean (?), and what the focused widget is for (F1).

Keys are told as they are bound now, so a key that was moved is told where it went.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from textwrap import dedent
from typing import Any, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from llamagym_tui.screens.help.keymap import FILE
from llamagym_tui.screens.metrics.figure_texts import FIGURES
from llamagym_tui.screens.widgets.fitted import Fitted
from llamagym_tui.screens.widgets.key_bar import moved_key
from llamagym_tui.screens.widgets.literal import literal
from llamagym_tui.user_files import config_dir

NAME_WIDTH = 16
UNBROKEN = 10_000
"""Cells: more than any line has."""
ASIDE = "$foreground 60%"
PLUS_MINUS = "Half the width of a mean return's 95 % confidence interval: 1.96 standard errors."


class Row(NamedTuple):
    """A line of help."""

    name: str
    meaning: str
    id: str = ""
    """Under which a key can be moved."""


def key_rows(screen: Screen[Any], wanted: Callable[[DOMNode, Binding], bool]) -> list[Row]:
    """The wanted keys of a screen, those of one action together.

    Dim ones are told, too, unless the screen's `TELLS_DIM_KEYS` says that they will not do anything later either.
    """
    dim_too = getattr(screen, "TELLS_DIM_KEYS", True)
    keys: dict[tuple[DOMNode, str], list[str]] = {}
    meanings: dict[tuple[DOMNode, str], tuple[str, str]] = {}
    for node, binding, enabled, tooltip in screen.active_bindings.values():
        meaning = tooltip or binding.description
        if meaning and (enabled or dim_too) and wanted(node, binding):
            keys.setdefault((node, binding.action), []).append(screen.app.get_key_display(binding))
            meanings[node, binding.action] = meaning, binding.id or ""
    return [Row(" ".join(shown), *meanings[action]) for action, shown in keys.items()]


def _is_told_in_help_alone(binding: Binding) -> bool:
    """Whether a key has no room in the bottom row; Textual's own ones have no tooltip."""
    return not binding.show and bool(binding.tooltip)


def keys_file() -> str:
    """Where a person's keys are written."""
    return literal(str(config_dir() / FILE))


Section = list[Row] | Content


class HelpText(Widget):
    """Sections under each other: rows in two columns, so that a meaning goes on under itself, and paragraphs."""

    DEFAULT_CSS = """
    HelpText { width: auto; max-width: 100%; height: auto; }
    """

    def __init__(self, sections: list[Section]) -> None:
        """The text of some sections."""
        super().__init__()
        self._sections = sections
        self._broken: dict[int, list[Content]] = {}
        """Lines by width: a layout asks for them several times."""

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Cells of the longest line, unbroken."""
        return max(line.cell_length for line in self._lines(UNBROKEN))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Rows at a width."""
        return len(self._lines(width))

    def render(self) -> Content:
        """The text at the present width."""
        return Content("\n").join(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        if width not in self._broken:
            blocks = [
                section.wrap(max(width, 1)) if isinstance(section, Content) else _table(section, width)
                for section in self._sections
            ]
            self._broken[width] = [line for block in blocks for line in (Content(""), *block)][1:]
        return self._broken[width]


def _table(rows: list[Row], width: int) -> list[Content]:
    """Names on the left, meanings on the right, as lines of a width."""
    lines: list[Content] = []
    for row in rows:
        names = Content.styled(literal(row.name), "bold $primary").wrap(NAME_WIDTH - 1)
        meanings = Content(literal(row.meaning)).wrap(max(width - NAME_WIDTH, 1))
        pairs = zip_longest(names, meanings, fillvalue=Content(""))
        lines += [name.pad_right(NAME_WIDTH - name.cell_length) + meaning for name, meaning in pairs]
    return lines


class HelpDialog(Fitted, ModalScreen[None]):
    """What the keys of a screen do, and what the figures mean."""

    CSS_PATH = "../widgets/dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,f1", "close", "Close", tooltip="Back.")
    ]
    TITLE_TEXT = "help"

    def __init__(self, screen: Screen[Any]) -> None:
        """Help on a screen, as it is now."""
        super().__init__()
        self._sections = self.sections(screen)

    def sections(self, screen: Screen[Any]) -> list[Section]:
        """Keys, then figures."""
        shown = key_rows(screen, lambda node, binding: isinstance(node, Screen) and binding.show)
        others = key_rows(screen, lambda node, binding: isinstance(node, Screen) and _is_told_in_help_alone(binding))
        key = partial(moved_key, screen.app)
        follow, older, newer = key("follow", "end or G"), key("search.older", "n"), key("search.newer", "N")
        conversation = [
            Row("↑ ↓ pgup pgdn", f"Scroll; {follow} follows the conversation again."),
            Row(key("search", "/"), f"Search the conversation; {older}: older, {newer}: newer."),
        ]
        more = [
            *(conversation if screen.query("ConversationPane") else []),
            Row("ctrl+p", "All commands that do something now, to search."),
            Row(key("focus_help", "F1"), "What the focused widget is for."),
        ]
        figures = [Row(text.short, text.meaning) for text in list(FIGURES.values())[:11]]
        figures.insert(1, Row("±", PLUS_MINUS))
        names = " · ".join(dict.fromkeys(f"{row.name} {row.id}" for row in [*shown, *others] if row.id))
        moving = Content.styled(f"Keys are moved in {keys_file()}, by their names: {names}", ASIDE)
        return [[*shown, *others, *more], figures, moving]

    def compose(self) -> ComposeResult:
        """The sections under each other."""
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = self.TITLE_TEXT
            dialog.border_subtitle = "escape closes"
            yield HelpText(self._sections)

    def action_close(self) -> None:
        """Back."""
        self.dismiss()


class FocusHelp(HelpDialog):
    """What the focused widget is for, and its own keys."""

    TITLE_TEXT = "help on this"

    def sections(self, screen: Screen[Any]) -> list[Section]:
        """The texts of help on the way to the screen, keys that do something here, then those of every such widget."""
        focused = screen.focused
        chain: list[DOMNode] = [screen] if focused is None else list(focused.ancestors_with_self)
        texts = [dedent(text).strip() for node in chain if (text := getattr(node, "HELP", None))]
        own = key_rows(screen, lambda node, binding: bool(binding.tooltip))
        others = key_rows(screen, lambda node, binding: not binding.tooltip and not isinstance(node, Screen))
        told: list[Section] = [Content(literal("\n\n".join(texts)))] if texts else []
        return [*told, *[rows for rows in (own, others) if rows]]
