"""Entries of a conversation as lines of a width: labels in a column of their own, texts wrapped beside it.

How many lines an entry takes can be told roughly, at once, and exactly, by wrapping it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.style import Style

from llamagym_tui.protocol.events import EpisodeStarted
from llamagym_tui.screens.conversation.entry_text import Said, said
from llamagym_tui.state.transcript import Entry

GUTTER = 8
"""Cells of the labels' column."""
NARROWEST = 8
"""Cells of text at least, below which nothing is set."""


class Block(Struct, frozen=True, gc=False):
    """An entry, and how much room its text takes."""

    entry: Entry
    prompt: str | None
    """System prompt told last, up to and including this entry."""
    prompt_is_new: bool
    """Whether the entry tells it in full."""
    fixed: int
    """Lines of paragraphs that are never wrapped."""
    length: int
    """Characters of the paragraph that is; -1: there is none."""
    breaks: int
    """Lines that its text has of itself, beyond the first."""
    is_plain: bool
    """Whether each of its characters takes one cell."""

    def about(self, room: int) -> tuple[int, bool]:
        """Lines at a width of the text, and whether that is exact."""
        if self.length < 0:
            return self.fixed, True
        if self.length <= room and not self.breaks and self.is_plain:
            return self.fixed + 1, True
        return self.fixed + self.breaks + max(1, -(-self.length // room)), False


class Mark(NamedTuple):
    """What is marked in a text: all matches of a pattern, one of them above the others."""

    pattern: re.Pattern[str]
    current: int | None
    """Which match, counted from 0 within the entry; None: no one."""


def block(entry: Entry, told: str | None, *, by_person: bool) -> Block:
    """An entry after the prompt that was told last."""
    prompt_is_new = isinstance(entry.fact, EpisodeStarted) and entry.fact.system_prompt != told
    if isinstance(entry.fact, EpisodeStarted):
        told = entry.fact.system_prompt
    fixed, length, breaks, is_plain = 0, -1, 0, True
    for paragraph in said(entry.fact, prompt_is_new=prompt_is_new, by_person=by_person):
        if paragraph.rule or paragraph.one_line:
            fixed += 1
            continue
        if length >= 0:  # the one before may have more lines than this
            fixed, is_plain = fixed + 1, False
        length, breaks = sum(len(piece.text) for piece in paragraph.pieces), 0
        for piece in paragraph.pieces:
            breaks += piece.text.count("\n")
            is_plain = is_plain and cell_len(piece.text) == len(piece.text) and "\t" not in piece.text
    return Block(entry, told, prompt_is_new, fixed, length, breaks, is_plain)


def searched_texts(told: Block, *, by_person: bool) -> list[str]:
    """The texts of an entry in which a search looks, in the order in which matches are counted."""
    paragraphs = said(told.entry.fact, prompt_is_new=told.prompt_is_new, by_person=by_person)
    return ["".join(piece.text for piece in paragraph.pieces) for paragraph in paragraphs if not paragraph.one_line]


class Typesetter:
    """Sets blocks in lines of one width."""

    def __init__(self, width: int, style: Callable[[str], Style], *, by_person: bool) -> None:
        """For a width.

        Args:
            width: cells of a line.
            style: gives a style by its name.
            by_person: whether a person speaks in the agent's place.
        """
        self.width, self.room = width, width - GUTTER
        self._style, self._by_person = style, by_person

    def lines(self, told: Block, mark: Mark | None = None) -> list[Content]:
        """The lines of a block."""
        lines: list[Content] = []
        before = 0
        for paragraph in said(told.entry.fact, prompt_is_new=told.prompt_is_new, by_person=self._by_person):
            text = Content("").join(
                [Content.styled(piece.text, self._style(piece.style)) for piece in paragraph.pieces]
            )
            if mark is not None and not paragraph.one_line:
                text, before = self._marked(text, mark, before)
            lines += self._set(paragraph, text)
        return lines

    def is_current(self, line: Content) -> bool:
        """Whether the match above the others stands in a line."""
        current = self._style("match-current")
        return any(span.style == current for span in line.spans)

    def _marked(self, text: Content, mark: Mark, before: int) -> tuple[Content, int]:
        for found in mark.pattern.finditer(text.plain):
            name = "match-current" if before == mark.current else "match"
            text = text.stylize(self._style(name), found.start(), found.end())
            before += 1
        return text, before

    def _set(self, paragraph: Said, text: Content) -> list[Content]:
        """The lines of a paragraph, the label beside the first."""
        if paragraph.rule:
            head = Content.assemble(("── ", self._style("rule")), text.truncate(max(1, self.width - 5)), " ")
            return [head + Content.styled("─" * max(0, self.width - head.cell_length), self._style("rule"))]
        first = Content.styled(f"{paragraph.label:<{GUTTER}}", self._style(paragraph.label_style))
        if paragraph.one_line:
            flat = Content.styled(" ".join(text.plain.split()), self._style(paragraph.pieces[0].style))
            return [first + flat.truncate(self.room, ellipsis=True)]
        indent = Content(" " * GUTTER)
        return [(indent if index else first) + line for index, line in enumerate(text.wrap(self.room))]
