"""The conversation of an environment: one scrolling widget that draws lines, however long the conversation is.

It follows the tail until the reader scrolls away, and again once they are back at the end. It wraps what is new or
changed, and everything only when the width changes; text can be selected and copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from textual.content import Content
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style

from llamagym_tui.protocol.events import EpisodeStarted
from llamagym_tui.screens.widgets.facts import Said, said
from llamagym_tui.transcript import Entry

GUTTER = 8
"""Cells of the labels' column."""


class Block(NamedTuple):
    """An entry as it is wrapped now."""

    entry: Entry
    lines: int
    prompt: str | None
    """System prompt told last, up to and including this entry."""


class ConversationView(ScrollView, can_focus=True):
    """A conversation that is told line by line."""

    ALLOW_SELECT = True
    STYLES: ClassVar[tuple[str, ...]] = (
        *("rule", "heading", "label", "system", "env", "agent-label", "agent", "action"),
        *("aside", "warning", "notice", "won", "lost", "even"),
    )
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"conversation--{style}" for style in STYLES}
    DEFAULT_CSS = """
    ConversationView {
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        & > .conversation--rule { color: $foreground 25%; }
        & > .conversation--heading { color: $foreground 70%; }
        & > .conversation--label { color: $foreground 45%; }
        & > .conversation--system { color: $foreground 55%; }
        & > .conversation--env { color: $foreground; }
        & > .conversation--agent-label { color: $primary; text-style: bold; }
        & > .conversation--agent { color: $primary; }
        & > .conversation--action { color: $foreground; text-style: bold; }
        & > .conversation--aside { color: $foreground 60%; }
        & > .conversation--warning { color: $warning; }
        & > .conversation--notice { color: $accent; text-style: italic; }
        & > .conversation--won { color: $success; text-style: bold; }
        & > .conversation--lost { color: $error; text-style: bold; }
        & > .conversation--even { color: $foreground 80%; text-style: bold; }
    }
    """

    @dataclass
    class FollowingChanged(Message):
        """The tail is followed, or no more."""

        following: bool

    def __init__(self, *, by_person: bool = False, placeholder: str = "", id: str | None = None) -> None:
        """An empty conversation.

        Args:
            by_person: whether a person speaks in the agent's place.
            placeholder: what is said while there is nothing to tell.
            id: id of the widget.
        """
        super().__init__(id=id)
        self._by_person = by_person
        self._placeholder = placeholder
        self._entries: Sequence[Entry] = ()
        self._blocks: list[Block] = []
        self._lines: list[Content] = []
        self._wrapped_at = 0
        self._following = True

    @property
    def following(self) -> bool:
        """Whether the newest line is kept in view."""
        return self._following

    @property
    def lines(self) -> Sequence[Content]:
        """The wrapped lines."""
        return self._lines

    def show(self, entries: Sequence[Entry]) -> None:
        """Tell a conversation of which the present one is, mostly, the beginning."""
        if entries is self._entries:
            return
        self._note_following()
        self._entries = entries
        self._update()

    def say_while_empty(self, placeholder: str) -> None:
        """Change what is said while there is nothing to tell."""
        if placeholder != self._placeholder:
            self._placeholder = placeholder
            if not self._entries:
                self.refresh()

    def notify_style_update(self) -> None:
        """Colours changed: every line is built anew."""
        super().notify_style_update()
        self._wrap_all()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling away lets the tail go; scrolling back to the end takes it up again."""
        super().watch_scroll_y(old_value, new_value)
        self._note_following()

    def _note_following(self) -> None:
        following = self.scroll_target_y >= self.max_scroll_y
        if following != self._following:
            self._following = following
            self.post_message(self.FollowingChanged(following))

    def on_resize(self, event: Resize) -> None:
        """A new width wraps everything anew; the tail stays in view."""
        if self._wrapped_at != self._width:
            self._wrap_all()
        elif self._following:
            self.scroll_end(animate=False, immediate=True, x_axis=False)

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    def _wrap_all(self) -> None:
        self._blocks.clear()
        self._lines.clear()
        self._update()

    def _update(self) -> None:
        """Bring the lines up to the entries, the scroll position up to the lines."""
        width = self._width
        if width <= GUTTER:
            return
        self._wrapped_at = width
        gone = self._drop_front()
        self._drop_changed()
        for entry in self._entries[len(self._blocks) :]:
            self._append(entry, width)
        self.virtual_size = Size(width, len(self._lines))
        if self._following:
            self.scroll_end(animate=False, immediate=True, x_axis=False)
        elif gone:
            self.scroll_to(y=self.scroll_y - gone, animate=False)
        self.refresh()

    def _drop_front(self) -> int:
        """Forget what the entries no longer have; the lines that went."""
        first = self._entries[0].serial if self._entries else None
        count = 0
        while count < len(self._blocks) and (first is None or self._blocks[count].entry.serial < first):
            count += 1
        gone = sum(block.lines for block in self._blocks[:count])
        del self._blocks[:count], self._lines[:gone]
        return gone

    def _drop_changed(self) -> None:
        """Forget the blocks at the end whose entries are others now."""
        while self._blocks:
            index = len(self._blocks) - 1
            if index < len(self._entries) and self._blocks[-1].entry is self._entries[index]:
                return
            del self._lines[len(self._lines) - self._blocks.pop().lines :]

    def _append(self, entry: Entry, width: int) -> None:
        told = self._blocks[-1].prompt if self._blocks else None
        new_prompt = isinstance(entry.fact, EpisodeStarted) and entry.fact.system_prompt != told
        if isinstance(entry.fact, EpisodeStarted):
            told = entry.fact.system_prompt
        before = len(self._lines)
        for paragraph in said(entry.fact, prompt_is_new=new_prompt, by_person=self._by_person):
            self._lines.extend(self._laid_out(paragraph, width))
        self._blocks.append(Block(entry, len(self._lines) - before, told))

    def _laid_out(self, paragraph: Said, width: int) -> list[Content]:
        """The lines of a paragraph, the label beside the first."""
        text = Content("").join([Content.styled(piece.text, self._style(piece.style)) for piece in paragraph.pieces])
        if paragraph.rule:
            head = Content.assemble(("── ", self._style("rule")), text.truncate(max(1, width - 5)), " ")
            return [head + Content.styled("─" * max(0, width - head.cell_length), self._style("rule"))]
        room = width - GUTTER
        first = Content.styled(f"{paragraph.label:<{GUTTER}}", self._style(paragraph.label_style))
        if paragraph.one_line:
            flat = Content.styled(" ".join(text.plain.split()), self._style(paragraph.pieces[0].style))
            return [first + flat.truncate(room, ellipsis=True)]
        indent = Content(" " * GUTTER)
        return [(indent if index else first) + line for index, line in enumerate(text.wrap(room))]

    def _style(self, name: str) -> Style:
        return self.get_visual_style(f"conversation--{name}", partial=True)

    def render_line(self, y: int) -> Strip:
        """The strip at a row of the widget."""
        width = self._width
        index = y + self.scroll_offset.y
        base = self.visual_style
        if not self._entries and y == 0 and self._placeholder:
            line = Content.styled(self._placeholder, self._style("aside")).truncate(width, ellipsis=True)
        elif index < len(self._lines):
            line = self._selected(self._lines[index], index)
        else:
            return Strip.blank(width, base.rich_style)
        segments = [Segment(text, style.rich_style) for text, style in line.render(base, end="")]
        return Strip(segments, line.cell_length).adjust_cell_length(width, base.rich_style).apply_offsets(0, index)

    def _selected(self, line: Content, index: int) -> Content:
        selection = self.text_selection
        if selection is None or (span := selection.get_span(index)) is None:
            return line
        start, end = span
        return line.stylize(
            self.screen.get_visual_style("screen--selection", partial=True), start, len(line) if end == -1 else end
        )

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, as it stands on the screen."""
        return selection.extract("\n".join(line.plain.rstrip() for line in self._lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw the selection."""
        self.refresh()
