"""What repeats: words that rollouts of a step share, with their share in the first step."""

import re
from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.rollouts.repeats import Repeated, repeated
from llamagym_tui.rollouts.rollout import Rollout
from llamagym_tui.screens.widgets.dialogs import Dialog
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.lines import Lines
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import share, share_bar

MOST = 200
"""Words in a row that are listed."""


class RepeatsDialog(Dialog[str]):
    """The words that most rollouts share; dismissed with a regular expression for the chosen ones."""

    heading = "what repeats"
    BINDINGS: ClassVar = [
        Binding("enter", "choose", "Search", tooltip="The rollouts with these words."),
        Binding("escape,q,r", "dismiss", "Back"),
    ]

    def __init__(self, title: str, now: Iterable[Rollout], first: Iterable[Rollout]) -> None:
        """Rollouts of a step, and of the first step, and what the list says of them."""
        super().__init__()
        self._title = title
        self._now = now
        self._first = first
        self._rows: list[Repeated] = []
        self._before: dict[str, float] = {}

    def body(self) -> ComposeResult:
        yield Words("Counting …")
        yield Lines()

    def on_mount(self) -> None:
        self.query_one(Lines).focus()
        self._count()

    @work(thread=True)
    def _count(self) -> None:
        before = {each.words: each.share for each in repeated(self._first, least=1)}
        self._before = before
        # What was said from the beginning on comes last.
        self._rows = sorted(
            repeated(self._now)[:MOST],
            key=lambda each: (before.get(each.words, 0.0) - each.share, -each.share, each.words),
        )
        self.call_later(self._show)

    def _show(self) -> None:
        self.query_one(Words).update(self._title if self._rows else "Nothing repeats.")
        self.query_one(Lines).show(len(self._rows), self._line, 0)

    def _line(self, at: int) -> Content:
        words, now = self._rows[at]
        before = f" {share(self._before.get(words, 0.0), 0):>5}" if self._before else ""
        return Content.assemble(share_bar(now), (before, ASIDE), f"  {one_line(words)}")

    def action_choose(self) -> None:
        if self._rows:
            words = self._rows[self.query_one(Lines).cursor].words.split()
            self.dismiss("/" + r"\s*".join(map(re.escape, words)) + "/")
