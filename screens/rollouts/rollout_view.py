"""A rollout as a conversation: thoughts, calls and what tools said are a line each until they are unfolded.

Where tokens are told apart, the cursor is on one of them.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding
from textual.content import Content
from textual.style import Style

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.rollouts.rollout import Token
from llamagym_tui.rollouts.search import Pattern
from llamagym_tui.screens.rollouts.parts import Part, Row, rows_of
from llamagym_tui.screens.widgets.lines import FAR, Lines
from llamagym_tui.screens.widgets.look import ASIDE

GUTTER = 10
"""Cells of the column of labels."""
MATCH = "bold reverse"
"""Style of what was searched for, and of the token under the cursor."""


class RolloutView(Lines):
    HELP = (
        "The rollout as a conversation. ▸ is a thought, a call or what a tool said, on one line: f unfolds it. "
        "reward is what the turn above it earned."
    )
    BINDING_GROUP_TITLE = "Rollout"
    BINDINGS: ClassVar = [
        Binding(
            "f,enter", "fold", "Unfold", tooltip="Unfold this part, or fold it.", id="view.fold"
        ),
        Binding("right,l", "token(1)", show=False),
        Binding("left,h", "token(-1)", show=False),
    ]
    _parts: Sequence[Part] = ()
    _pattern: Pattern | None = None
    _column = 0
    """Index of the token under the cursor in its row."""

    def __init__(
        self, style_of: Callable[[Token], Style | str] = lambda token: "", *, id: str | None = None
    ) -> None:
        """`style_of` colours a token."""
        super().__init__(id=id)
        self._style_of = style_of
        self._rows: list[Row] = []
        self._unfolded: set[int] = set()

    def open(
        self, parts: Sequence[Part], pattern: Pattern | None = None, *, unfolded: bool = False
    ) -> None:
        """Show a rollout, with the cursor on what was searched for, and all parts unfolded or those that have it.

        The same rollout as before is drawn again, and nothing else.
        """
        if parts == self._parts and pattern is self._pattern:
            self.refresh()
            return
        matching = {
            at: found
            for at, part in enumerate(parts)
            if pattern and (found := pattern.find(part.text))
        }
        self._unfolded = set(range(len(parts))) if unfolded else set(matching)
        self._parts = parts
        self._pattern = pattern
        self._column = 0
        of_tokens = (at for at, part in enumerate(parts) if part.tokens)
        first = min(matching, default=next(of_tokens, 0))
        self._lay_out(first, parts[first].text[: matching[first][0]] if matching else "")

    def _lay_out(self, part: int, before: str = "") -> None:
        """Wrap the parts, with the cursor on the row of one that goes on from a text.

        Rows leave out some spaces, so these do not count.
        """
        if not self.size:  # a first layout gives it one
            return
        self._rows = rows_of(self._parts, self._unfolded, max(1, self.line_width - 1 - GUTTER))
        left = len("".join(before.split()))
        cursor = 0
        for at, row in enumerate(self._rows):
            if row.part == part and left >= 0:
                cursor = at
                left -= len("".join(row.text.split()))
        self.show(len(self._rows), self._line_of, cursor)

    def on_resize(self) -> None:
        part = self._rows[self.cursor].part if self._rows else 0
        rows = self._rows[: self.cursor]
        self._lay_out(part, "".join(row.text for row in rows if row.part == part))

    def action_fold(self) -> None:
        if self._rows:
            part = self._rows[self.cursor].part
            self._unfolded ^= {part}
            self._lay_out(part)

    @property
    def _at(self) -> int:
        """Index of the piece under the cursor."""
        return min(self._column, len(self._rows[self.cursor].pieces) - 1)

    @property
    def token(self) -> Token | None:
        """The token under the cursor."""
        return self._rows[self.cursor].pieces[self._at][1] if self._rows else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "token" or self.token is not None

    def action_token(self, by: int) -> None:
        """Move the cursor to the next token or the one before, which may be in another row."""
        column = self._at + by
        rows = 0
        if not 0 <= column < len(self._rows[self.cursor].pieces):
            rows = by
            column = 0 if by > 0 or not self.cursor else FAR
        self._column = column
        self.action_move(rows)

    def _line_of(self, at: int) -> Content:
        row = self._rows[at]
        part = self._parts[row.part]
        begins = not at or self._rows[at - 1].part != row.part
        label = Content.styled(one_line(part.label) if begins else "", part.style or "bold")
        label = label.truncate(GUTTER - 1, pad=True) + " "
        if part.folds and row.part not in self._unfolded:
            return Content.assemble(label, ("▸ ", ASIDE), (one_line(row.text), part.style))
        line = label
        for index, (text, token) in enumerate(row.pieces):
            style = self._style_of(token) if token else part.style
            if token and at == self.cursor and index == self._at:
                style, text = MATCH, text or "↵"
            line += Content.styled(text, style)
        if self._pattern and (found := self._pattern.find(row.text)):
            line = line.stylize(MATCH, GUTTER + found[0], GUTTER + found[1])
        return line
