"""Entries of a conversation as lines of a width: labels in a column of their own, texts wrapped next to it.

How many lines an entry takes is counted without setting them: 24,000 entries in a tenth of a second.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.style import Style

from llamagym_tui.protocol.events import EpisodeStarted, ObservationShown
from llamagym_tui.screens.conversation.entry_text import Paragraph, Piece, paragraphs
from llamagym_tui.screens.conversation.turn_line import Turn, TurnLine, turn_line
from llamagym_tui.state.transcript import Entry, Fact, is_message

GUTTER = 8
"""Cells of the labels' column."""
NARROWEST = 8
"""Cells of text at least, below which nothing is set."""
WORDS_WIDE = 20
"""Cells of a turn's words on its line, so that the actions after few words stand below each other."""
MIN_WORDS = 12
"""Cells of them that are left at least where the action is long."""
WORDS = re.compile(r"\s*\S+\s*")


class Block(Struct, frozen=True, gc=False):
    """An entry, and what is needed to count its lines and to search it."""

    entry: Entry
    prompt: str | None
    """The last system prompt, up to and including this entry."""
    prompt_is_new: bool
    """Whether the entry shows it."""
    messages: int
    """Messages up to and including this entry."""
    headings: tuple[str, ...]
    """Texts on a rule, a line each; they are searched, and never wrapped."""
    texts: tuple[str, ...]
    """Texts of the paragraphs that are wrapped."""
    line: TurnLine | None = None
    """Stands above them for the whole turn, of which this is the first entry. None: it is not, or has none."""
    folded: bool = False
    """Whether nothing else is shown of the entry."""
    seen: str = ""
    """The last observation, up to and including this entry."""

    def lines(self, room: int) -> int:
        above = int(self.line is not None)
        if self.folded:
            return above
        return above + len(self.headings) + sum(line_count(text, room) for text in self.texts)

    @property
    def searched(self) -> tuple[str, ...]:
        """The texts in which a search looks, in the order in which matches are counted."""
        return self.headings + self.texts


class Highlight(NamedTuple):
    """What is highlighted in a text: all matches of a pattern, one of them above the others."""

    pattern: re.Pattern[str]
    current: int | None
    """Which match, counted from 0 within the entry; None: no one."""


class Fold(NamedTuple):
    """How an entry is shown where turns are lines that unfold."""

    turn: Turn
    facts: Sequence[Fact]
    """Of the turn from this entry on, if it is the first; else empty."""
    is_open: bool


def block(
    entry: Entry, before: Block | None, *, by_person: bool, fold: Fold | None = None
) -> Block:
    """An entry after the block before it; `fold` None: all of it is shown, and no line for its turn."""
    prompt = before.prompt if before else None
    prompt_is_new = isinstance(entry.fact, EpisodeStarted) and entry.fact.system_prompt != prompt
    if isinstance(entry.fact, EpisodeStarted):
        prompt = entry.fact.system_prompt
    headings: list[str] = []
    texts: list[str] = []
    for paragraph in paragraphs(entry.fact, prompt_is_new=prompt_is_new, by_person=by_person):
        if paragraph.rule and fold is not None:
            continue  # the turn's line stands there
        (headings if paragraph.rule else texts).append(
            "".join(piece.text for piece in paragraph.pieces)
        )
    messages = (before.messages if before else 0) + is_message(entry.fact)
    seen = before.seen if before else ""
    line = None
    if fold is not None and fold.facts:
        line = turn_line(fold.turn, fold.facts, seen)
    if isinstance(entry.fact, ObservationShown):
        seen = entry.fact.text
    folded = fold is not None and not fold.is_open
    told = tuple(headings), tuple(texts)
    return Block(entry, prompt, prompt_is_new, messages, *told, line, folded, seen)


def line_count(text: str, room: int) -> int:
    """How many lines `Content.wrap` makes of a text."""
    if "\t" in text or not (
        text.isascii() or all(cell_len(each) == 1 for each in set(text) - {"\n"})
    ):
        fits = "\n" not in text and "\t" not in text and cell_len(text) <= room
        return 1 if fits else len(Content(text).wrap(room))
    return sum(1 + _breaks(line, room) for line in text.split("\n"))


def _breaks(line: str, room: int) -> int:
    """Breaks in a line of characters of one cell: Rich's rule, ten times as fast as making the lines."""
    if len(line) <= room:
        return 0
    breaks, column, is_first = 0, 0, True
    for word in WORDS.findall(line):
        length = len(word.rstrip())
        if column + length <= room:
            column += len(word)
        elif length > room:  # folded
            pieces = -(-len(word) // room)
            breaks += pieces - is_first
            column = len(word) - room * (pieces - 1)
        elif column and not is_first:
            breaks += 1
            column = len(word)
        is_first = False
    return breaks


class LineIndex:
    """Where each entry begins, in lines: found, added and dropped at a cost that does not grow with the conversation.

    Lines are numbered from the first that ever was, so that a line keeps its number when older ones go.
    """

    def __init__(self) -> None:
        self.first = 0
        """Number of the first line."""
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def end(self) -> int:
        """Number of the line after the last."""
        return self._ends[-1] if self._ends else self.first

    def start(self, entry: int) -> int:
        """Number of an entry's first line."""
        return self._ends[entry - 1] if entry else self.first

    def find(self, line: int) -> int:
        """The entry that a line belongs to; of a line outside, the nearest. There is at least one entry."""
        return min(bisect_right(self._ends, max(line, self.first)), len(self._ends) - 1)

    def add(self, lines: int) -> None:
        self._ends.append(self.end + lines)

    def change(self, entry: int, lines: int) -> None:
        """Have an entry take another number of lines; those before it keep theirs."""
        more = lines - (self._ends[entry] - self.start(entry))
        if more:
            self._ends[entry:] = [end + more for end in self._ends[entry:]]

    def drop_last(self) -> None:
        self._ends.pop()

    def drop_first(self, entries: int) -> None:
        """Drop the first entries; the lines of the others keep their numbers."""
        if entries:
            self.first = self._ends[entries - 1]
            del self._ends[:entries]


class Typesetter:
    """Sets blocks in lines of one width."""

    def __init__(self, width: int, style: Callable[[str], Style], *, by_person: bool) -> None:
        """`width` in cells; `by_person`: a person speaks in the agent's place."""
        self.width = width
        self.room = width - GUTTER
        self._style = style
        self._by_person = by_person

    def lines(self, block: Block, highlight: Highlight | None = None) -> list[Content]:
        """The lines of a block; as many as it counts."""
        lines: list[Content] = []
        before = 0
        if block.line is not None:
            lines.append(self._line(block.line))
        if block.folded:
            return lines
        for paragraph in paragraphs(
            block.entry.fact, prompt_is_new=block.prompt_is_new, by_person=self._by_person
        ):
            if paragraph.rule and not block.headings:
                continue
            text = self._styled(paragraph.pieces)
            if highlight is not None:
                text, before = self._highlighted(text, highlight, before)
            lines += self._set(paragraph, text)
        return lines

    def _styled(self, pieces: Iterable[Piece]) -> Content:
        return Content("").join(
            [Content.styled(piece.text, self._style(piece.style)) for piece in pieces]
        )

    def _line(self, line: TurnLine) -> Content:
        """What was seen, cut where there is no room; what was done, and at the right end what it earned."""
        label = Content.styled(f"{line.label:<{GUTTER - 1}} ", self._style(line.label_style))
        rest, right = self._styled(line.rest), self._styled(line.right)
        gap = 2 if line.right else 0
        room = self.room - right.cell_length - gap
        rest = rest.truncate(max(1, room - MIN_WORDS), ellipsis=True)
        words = self._styled([line.words])
        words = words.truncate(max(1, room - rest.cell_length - 2), ellipsis=True)
        words = words.pad_right(max(0, min(WORDS_WIDE, room // 2) - words.cell_length))
        left = Content.assemble(words, "  ", rest).truncate(room)
        between = " " * max(0, self.room - left.cell_length - right.cell_length)
        return Content.assemble(label, left, between, right)

    def is_current(self, line: Content) -> bool:
        """Whether the match above the others stands in a line."""
        current = self._style("match-current")
        return any(span.style == current for span in line.spans)

    def _highlighted(self, text: Content, highlight: Highlight, before: int) -> tuple[Content, int]:
        for found in highlight.pattern.finditer(text.plain):
            name = "match-current" if before == highlight.current else "match"
            text = text.stylize(self._style(name), found.start(), found.end())
            before += 1
        return text, before

    def _set(self, paragraph: Paragraph, text: Content) -> list[Content]:
        if paragraph.rule:
            head = Content.assemble(
                ("── ", self._style("rule")), text.truncate(max(1, self.width - 5)), " "
            )
            return [
                head
                + Content.styled("─" * max(0, self.width - head.cell_length), self._style("rule"))
            ]
        first = Content.styled(f"{paragraph.label:<{GUTTER}}", self._style(paragraph.label_style))
        indent = Content(" " * GUTTER)
        return [
            (indent if index else first) + line for index, line in enumerate(text.wrap(self.room))
        ]
