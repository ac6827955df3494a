"""The text of a help as one widget: names on the left, meanings on the right.

How many lines a row takes is counted; only those that are in view are set.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from llamagym_tui.protocol.literal import literal

NAME_WIDTH = 15
"""Cells of the names' column."""
GUTTER = NAME_WIDTH + 1


class HelpRow(NamedTuple):
    name: str
    meaning: str
    id: str = ""
    """Under which a key can be moved."""


Section = list[HelpRow] | Content
"""Rows, or a text over the whole width; a first row without a meaning is a title."""
Part = HelpRow | Content


class HelpText(Widget):
    """Sections with a blank line between them; a long meaning continues under itself."""

    DEFAULT_CSS = "HelpText { width: auto; max-width: 100%; height: auto; }"

    def __init__(self, sections: Sequence[Section]) -> None:
        super().__init__()
        self.sections = sections
        self._words: list[str] = []
        self._width = 0
        """For which the lines are counted; 0: they have to be."""
        self._parts: list[Part] = []
        self._ends: list[int] = []
        """Number of the line after each part."""
        self._set: dict[int, list[Content]] = {}
        """The lines of parts that were in view."""

    @property
    def rows(self) -> list[HelpRow]:
        """All rows that have a meaning, found or not."""
        return [
            row
            for section in self.sections
            if not isinstance(section, Content)
            for row in section
            if row.meaning
        ]

    def show(self, sections: Sequence[Section]) -> None:
        """Show other sections, all of them."""
        self.sections = sections
        self.filter([])

    def filter(self, words: list[str]) -> None:
        """Show the rows in which all words are, under their titles; all there is where there are no words."""
        self._words = words
        self._width = 0
        self.refresh(layout=True)

    def _found(self) -> Iterator[Section]:
        if not self._words:
            yield from self.sections
            return
        for section in self.sections:
            if not isinstance(section, Content):
                rows = [row for row in section if not row.meaning or self._has_words(row)]
                if any(row.meaning for row in rows):
                    yield rows

    def _has_words(self, row: HelpRow) -> bool:
        return all(word in f"{row.name} {row.meaning}".lower() for word in self._words)

    def _count(self, width: int) -> int:
        """How many lines there are at a width in cells."""
        if self._width != width:
            self._width = width
            self._parts = []
            self._ends = []
            self._set = {}
            end = 0
            for section in self._found():
                if self._parts:
                    self._parts.append(Content(""))
                    self._ends.append(end := end + 1)
                for part in [section] if isinstance(section, Content) else section:
                    self._parts.append(part)
                    self._ends.append(end := end + _lines(part, width))
        return self._ends[-1] if self._ends else 0

    def get_content_width(self, container: Size, viewport: Size) -> int:
        widths = [0]
        for section in self._found():
            if isinstance(section, Content):
                widths.append(section.cell_length)
            else:
                widths += [GUTTER + cell_len(literal(row.meaning)) for row in section]
        return max(widths)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._count(width)

    def notify_style_update(self) -> None:
        """Colours changed."""
        super().notify_style_update()
        self._set = {}
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.visual_style
        if y >= self._count(width):
            return Strip.blank(width, base.rich_style)
        at = bisect_right(self._ends, y)
        if at not in self._set:
            self._set[at] = self._lines_of(self._parts[at])
        line = self._set[at][y - (self._ends[at - 1] if at else 0)]
        pieces = line.render(base, end="", parse_style=self._parsed)
        segments = [Segment(text, style.rich_style) for text, style in pieces]
        return Strip(segments, line.cell_length).adjust_cell_length(width, base.rich_style)

    def _lines_of(self, part: Part) -> list[Content]:
        if isinstance(part, Content):
            return part.wrap(self._width)
        name = Content(literal(part.name))
        if not part.meaning:
            return [name.stylize("bold").truncate(self._width)]
        names = name.stylize("bold $primary").wrap(NAME_WIDTH)
        meanings = Content(literal(part.meaning)).wrap(self._width - GUTTER)
        pairs = zip_longest(names, meanings, fillvalue=Content(""))
        return [name.pad_right(GUTTER - name.cell_length) + meaning for name, meaning in pairs]

    def _parsed(self, style: str | Style) -> Style:
        return Style.parse(style, self.app.theme_variables) if isinstance(style, str) else style


def _lines(part: Part, width: int) -> int:
    if isinstance(part, Content):
        return len(part.wrap(width))
    if not part.meaning:
        return 1
    return max(
        len(Content(literal(part.name)).wrap(NAME_WIDTH)),
        len(Content(literal(part.meaning)).wrap(width - GUTTER)),
    )
