"""Dialogs: yes-no questions, and help on a screen."""

from collections.abc import Callable
from textwrap import dedent
from typing import Any, ClassVar

from rich.table import Table
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.style import Style

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.look import own_styles

YES = "y ⏎"
"""Keys of a yes in the bottom row."""
NO = "n esc"
"""Keys of a no in the bottom row."""


class Dialog(ModalScreen[ScreenResultType]):
    """A frame with a title over a screen, and the row of keys."""

    DEFAULT_CSS = own_styles(__file__)
    SCOPED_CSS = False  # The style sheet has rules of some dialogs.
    FRAME: ClassVar[type[Vertical | VerticalScroll]] = Vertical
    heading = ""
    """The title of the frame."""

    def compose(self) -> ComposeResult:
        with self.FRAME(classes="dialog") as frame:
            frame.border_title = Content(self.heading)
            yield from self.body()
        yield KeyBar()

    def body(self) -> ComposeResult:
        """The widgets in the frame."""
        raise NotImplementedError


class ConfirmDialog(Dialog[bool]):
    """A question; dismissed with the answer.

    Args:
        title: in a word or two.
        questions: a paragraph each on what yes means; texts are literal.
        yes: what is done then, in a word or two.
        no: the other way.
    """

    FRAME = VerticalScroll
    BINDINGS = [
        Binding("y,enter", "dismiss(True)", "Yes", key_display=YES),
        Binding("n,escape,q", "dismiss(False)", "No", key_display=NO),
    ]

    def __init__(self, title: str, *questions: str | Content, yes: str, no: str) -> None:
        super().__init__()
        self.heading = title
        self._questions = questions
        self._answers = _answer("y", yes, True) + "   " + _answer("n", no, False)

    def body(self) -> ComposeResult:
        texts = [
            each if isinstance(each, Content) else Content(one_line(each))
            for each in self._questions
        ]
        is_prose = all(isinstance(each, str) for each in self._questions)
        self.set_class(is_prose, "-prose")
        yield Words(Content("\n\n").join([*texts, self._answers]))

    def ask(self, app: App[None], then: Callable[[], object]) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                then()

        app.push_screen(self, answered)


class CautiousDialog(ConfirmDialog):
    """A question to which enter answers no."""

    BINDINGS = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,enter,escape,q", "dismiss(False)", "No", key_display="n ⏎ esc"),
    ]


class QuitDialog(ConfirmDialog):
    """Asks before leaving; each question is a sentence on the consequences."""

    BINDINGS = [
        Binding("y,enter,q", "dismiss(True)", "Leave", key_display=YES),
        Binding("n,escape", "dismiss(False)", "Stay", key_display=NO),
    ]


def _answer(key: str, words: str, answer: bool) -> Content:
    """An answer with its key, which can be clicked."""
    return Content.assemble((f" {key} ", "bold reverse"), f" {one_line(words)}").stylize(
        Style.from_meta({"@click": f"screen.dismiss({answer})"})
    )


class HelpDialog(Dialog[None]):
    FRAME = VerticalScroll
    heading = "help"
    BINDINGS = [Binding("escape,q,enter,question_mark", "dismiss", "Close")]

    def __init__(self, of: Screen[Any]) -> None:
        """Help on a screen as it is now."""
        super().__init__()
        self._of = of

    def body(self) -> ComposeResult:
        if purpose := self._purpose():
            yield Words(purpose)
        yield Words(self._keys())

    def _purpose(self) -> str:
        """The `HELP` texts of the focused widget and its parents."""
        focused = self._of.focused or self._of
        texts = [getattr(node, "HELP", None) for node in focused.ancestors_with_self]
        return "\n\n".join(dedent(text).strip() for text in texts if text)

    def _keys(self) -> Table:
        """Keys with a tooltip, one row for each action, under the title of the widget that binds them."""
        rows: dict[tuple[str, str], list[str]] = {}
        for node, binding, _, tooltip in self._of.active_bindings.values():
            if tooltip and not binding.system:
                title = node.BINDING_GROUP_TITLE or "Everywhere"
                keys = rows.setdefault((title, tooltip), [])
                # The bottom row may name two keys at once; here each has a row.
                keys.append(self.app.get_key_display(Binding(binding.key, "", "")))
        table = Table.grid(padding=(0, 1))
        shown = ""
        for (title, tooltip), keys in rows.items():
            if title != shown:
                shown = title
                table.add_row("")
                table.add_row(title, style="bold")
            table.add_row(" ".join(keys), tooltip)
        return table
