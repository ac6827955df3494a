"""The conversation of an environment: one scrolling widget that draws lines, however long the conversation is.

Only what is seen is set in lines and kept so; of the rest it knows how many lines it takes, at first roughly. It
follows the tail until the reader scrolls away, and again once they are back at the end; text can be selected, copied
and searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Resize
from textual.geometry import Offset, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style

from llamagym_tui.screens.conversation.line_index import LineIndex
from llamagym_tui.screens.conversation.text_search import Match, TextSearch
from llamagym_tui.screens.conversation.typesetting import (
    GUTTER,
    NARROWEST,
    Block,
    Mark,
    Typesetter,
    block,
    searched_texts,
)
from llamagym_tui.state.transcript import Entry, Reply, is_message

CURRENT = Style(bold=True, reverse=True)
"""Of the match that is looked at."""
KEPT = 512
"""Entries whose lines are kept."""
MEASURED = 200
"""Entries that are measured between two looks at the keyboard."""
LOOKED_THROUGH = 250
"""Entries that are searched between two looks at the keyboard."""
SOON_S = 0.02
"""Seconds between two such pieces of work."""


class ConversationView(ScrollView, can_focus=True):
    """A conversation that is told line by line."""

    ALLOW_SELECT = True
    HELP = (
        "What environment and agent say: env is the observation, agent the reply as it was sampled, action what the "
        "environment got of it, how it was read and what it earned. At a slower pace policy tells how probable each "
        "action is before the reply. The end is followed until you scroll away; / searches; text is selected with "
        "the mouse and copied with ctrl+c."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "end,G", "follow", "Newest", show=False, tooltip="Back to the newest line, and follow it.", id="follow"
        ),
    ]
    STYLES: ClassVar[tuple[str, ...]] = (
        *("rule", "heading", "label", "system", "env", "agent-label", "agent", "action"),
        *("aside", "warning", "notice", "won", "lost", "even", "match"),
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
        & > .conversation--match { background: $warning 30%; text-style: underline; }
    }
    """

    @dataclass
    class TailChanged(Message):
        """The tail is followed or no more, or more messages wait below."""

        following: bool
        waiting: int
        """Messages that came and were not seen yet."""

    @dataclass
    class SearchChanged(Message):
        """Another match is looked at, or more were found."""

        status: str
        """Which of how many, for people; empty without a search."""

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
        self._index = LineIndex()
        self._rough: set[int] = set()
        """Serials of entries whose lines are only guessed."""
        self._set_lines: dict[int, list[Content]] = {}
        """Lines by serial, of at most `KEPT` entries."""
        self._typesetter: Typesetter | None = None
        self._following = True
        self._seen = -1
        """Serial of the newest entry that was in view."""
        self._counted, self._waiting = -1, 0
        """Serial up to which messages were counted that were not in view, and how many."""
        self._tail = (True, 0)
        self._search: TextSearch | None = None
        self._told_of_search = ""
        self._stays = False
        """Whether a match is looked at, so that the end of the lines is not followed."""
        self._work_due = False

    # What is told

    @property
    def following(self) -> bool:
        """Whether the newest line is kept in view."""
        return self._following

    @property
    def waiting(self) -> int:
        """Messages that came and were not seen yet."""
        return self._tail[1]

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
        """Colours changed: every line is set anew."""
        super().notify_style_update()
        self._set_lines.clear()
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        """A new width sets everything anew; what is in view stays there."""
        if self._typesetter is None or self._typesetter.width != self._width:
            self._measure_anew()
        elif self._following and not self._leaves:
            self._to_end()

    @property
    def _leaves(self) -> bool:
        """Whether the reader has just begun to scroll away."""
        return bool(self.scroll_target_y < self.scroll_y)

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _first_serial(self) -> int:
        return self._blocks[0].entry.serial

    def _measure_anew(self) -> None:
        """Guess the lines of everything at the present width; what is in view is measured."""
        if self._width < GUTTER + NARROWEST:
            return
        kept = None if self._following or not len(self._index) else self._index.find(self._top)
        self._typesetter = Typesetter(self._width, self._style, by_person=self._by_person)
        self._set_lines.clear()
        self._rough.clear()
        self._index = LineIndex()
        for told in self._blocks:
            self._measure_roughly(told)
        if self.is_attached and self in self.screen.selections:  # it was of other lines
            self.screen.selections = {widget: of for widget, of in self.screen.selections.items() if widget is not self}
        self._update()
        if kept is not None and kept < len(self._index):
            self._scroll_to_line(self._index.start(kept))

    def _update(self) -> None:
        """Bring the blocks up to the entries, the scroll position up to the lines."""
        if self._typesetter is None:
            if self._width >= GUTTER + NARROWEST:
                self._measure_anew()
            return
        top = self._top
        self._drop_front()
        self._drop_changed()
        for at in range(len(self._blocks), len(self._entries)):
            prompt = self._blocks[-1].prompt if self._blocks else None
            told = block(self._entries[at], prompt, by_person=self._by_person)
            self._blocks.append(told)
            self._measure_roughly(told)
        self._settle()
        if self._following:
            self._to_end()
        else:
            self._scroll_to_line(max(top, self._index.first))
        if self._search is not None:
            self._look_further(self._search)
        self._work_soon()
        self._tell_tail()
        self.refresh()

    def _drop_front(self) -> None:
        """Forget what the entries no longer have."""
        first = self._entries[0].serial if self._entries else None
        count = 0
        while count < len(self._blocks) and (first is None or self._blocks[count].entry.serial < first):
            self._forget(self._blocks[count])
            count += 1
        del self._blocks[:count]
        self._index.drop_first(count)

    def _drop_changed(self) -> None:
        """Forget the blocks at the end whose entries are others now."""
        while self._blocks:
            at = len(self._blocks) - 1
            if at < len(self._entries) and self._blocks[-1].entry is self._entries[at]:
                return
            self._forget(self._blocks.pop())
            self._index.drop_last()

    def _forget(self, told: Block) -> None:
        self._rough.discard(told.entry.serial)
        self._set_lines.pop(told.entry.serial, None)

    # Lines

    def _measure_roughly(self, told: Block) -> None:
        assert self._typesetter is not None
        lines, exact = told.about(self._typesetter.room)
        self._index.add(lines)
        if not exact:
            self._rough.add(told.entry.serial)

    def _lines_of(self, at: int) -> list[Content]:
        """The lines of a block."""
        assert self._typesetter is not None
        told = self._blocks[at]
        lines = self._set_lines.get(told.entry.serial)
        if lines is None:
            lines = self._typesetter.lines(told, self._mark(told.entry.serial))
            while len(self._set_lines) >= KEPT:
                del self._set_lines[next(iter(self._set_lines))]
            self._set_lines[told.entry.serial] = lines
        return lines

    def _measure(self, at: int) -> None:
        """Know how many lines a block takes."""
        self._rough.discard(self._blocks[at].entry.serial)
        lines = len(self._lines_of(at))
        if lines != self._index.lines(at):
            self._index.change(at, [lines])

    def _measured(self, at: int) -> int:
        """Lines that a block takes, counted if they are only guessed."""
        told = self._blocks[at]
        if told.entry.serial not in self._rough:
            return self._index.lines(at)
        assert self._typesetter is not None
        self._rough.discard(told.entry.serial)
        return len(self._typesetter.lines(told))

    def _settle(self) -> None:
        """Measure what is in view, from its upper end or, if the tail is followed, its lower one."""
        height = self.size.height
        if not self._blocks or not self._rough:
            return
        if self._following:
            at, room = len(self._blocks) - 1, height
            while at >= 0 and room > 0:
                if self._blocks[at].entry.serial in self._rough:
                    self._measure(at)
                room -= self._index.lines(at)
                at -= 1
            return
        at = self._index.find(self._top)
        end = self._top + height
        while at < len(self._blocks) and self._index.start(at) < end:
            if self._blocks[at].entry.serial in self._rough:
                self._measure(at)
            at += 1

    def _work_soon(self) -> None:
        """Measure, and search, some more in a moment."""
        if not self._work_due and (self._rough or (self._search is not None and not self._search.done)):
            self._work_due = True
            self.set_timer(SOON_S, self._work)

    def _work(self) -> None:
        self._work_due = False
        if self._rough:
            self._measure_some()
        if self._search is not None:
            self._look_further(self._search)
        self._work_soon()

    def _measure_some(self) -> None:
        """Measure some blocks that were guessed, the newest first; what is in view stays there."""
        top = self._index.find(self._top)
        within = self._top - self._index.start(top)
        serials = sorted(nlargest(MEASURED, self._rough))
        span = range(serials[0] - self._first_serial, serials[-1] - self._first_serial + 1)
        self._index.change(span.start, [self._measured(at) for at in span])
        if self._leaves:
            self.virtual_size = Size(self._width, self._index.end - self._index.first)
        elif self._following:
            self._to_end()
        else:
            self._scroll_to_line(self._index.start(top) + within)
        self.refresh()

    # Scrolling

    @property
    def _top(self) -> int:
        """Number of the line at the upper edge."""
        return self._index.first + self.scroll_offset.y

    def _to_end(self) -> None:
        self.virtual_size = Size(self._width, self._index.end - self._index.first)
        self.scroll_end(animate=False, immediate=True, x_axis=False)

    def _scroll_to_line(self, line: int) -> None:
        self.virtual_size = Size(self._width, self._index.end - self._index.first)
        if line - self._index.first != self.scroll_offset.y:
            self.scroll_to(y=line - self._index.first, animate=False, immediate=True)

    def action_follow(self) -> None:
        """Go to the newest line, and follow it."""
        self._following, self._stays = True, False
        self._settle()
        self._to_end()
        self._tell_tail()

    def action_page_up(self) -> None:
        """A page towards the beginning, at once: to glide there is to paint ten pages."""
        self._turn_page(-1)

    def action_page_down(self) -> None:
        """A page towards the end."""
        self._turn_page(1)

    def _turn_page(self, by: int) -> None:
        self.scroll_to(y=self.scroll_y + by * self.size.height, animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling away lets the tail go; scrolling back to the end takes it up again."""
        super().watch_scroll_y(old_value, new_value)
        self._note_following()
        if not self._following:
            self._settle()
        self._tell_tail()

    def _note_following(self) -> None:
        self._following = not self._stays and self.scroll_target_y >= self.max_scroll_y

    def _tell_tail(self) -> None:
        """Say whether the tail is followed, and what waits below."""
        if self._blocks:
            last = self._index.find(self._top + self.size.height - 1)
            newest = self._blocks[-1].entry.serial if self._following else self._blocks[last].entry.serial
            self._count_waiting(max(min(self._seen, self._blocks[-1].entry.serial), newest))
        tail = (self._following, self._waiting)
        if tail != self._tail:
            self._tail = tail
            self.post_message(self.TailChanged(*tail))

    def _count_waiting(self, seen: int) -> None:
        """Count the messages after the newest one that was seen; those that were counted before are not again."""
        if seen != self._seen or self._counted > self._blocks[-1].entry.serial:
            self._seen, self._counted, self._waiting = seen, seen, 0
        unseen = self._blocks[max(0, self._counted + 1 - self._first_serial) :]
        self._waiting += sum(is_message(told.entry.fact) for told in unseen)
        self._counted = self._blocks[-1].entry.serial

    # Searching

    @property
    def search(self) -> TextSearch | None:
        """The search that is on."""
        return self._search

    def find(self, text: str) -> None:
        """Mark a text wherever it stands, and go to where it stands last, seen from here; none if it is empty."""
        self._search, self._stays = None, False
        self._set_lines.clear()
        if text:
            last = self._index.find(self._top + self.size.height - 1) if self._blocks else -1
            seen = self._blocks[last].entry.serial if self._blocks else -1
            self._search = TextSearch(text, min(seen, self._last_whole))
            self._look_further(self._search)
            self._work_soon()
        self._tell_search()
        self.refresh()

    def find_next(self, by: int) -> None:
        """Go to the next match, or the one before."""
        if self._search is not None and len(self._search):
            left = self._search.current
            self._search.step(by)
            self._go_to_match(left)

    def _look_further(self, search: TextSearch) -> None:
        if not self._blocks:
            return
        before = search.current
        search.look(self._first_serial, self._last_whole, self._searched, LOOKED_THROUGH)
        if before is None and search.current is not None:
            self._go_to_match(None)
        self._tell_search()

    @property
    def _last_whole(self) -> int:
        """Serial of the newest entry that changes no more; -1: there is none."""
        if not self._blocks:
            return -1
        newest = self._blocks[-1].entry
        grows = isinstance(newest.fact, Reply) and not newest.fact.done
        return newest.serial - grows

    def _searched(self, serial: int) -> list[str]:
        return searched_texts(self._blocks[serial - self._first_serial], by_person=self._by_person)

    def _mark(self, serial: int) -> Mark | None:
        if self._search is None:
            return None
        current = self._search.current
        return Mark(self._search.pattern, current.nth if current is not None and current.serial == serial else None)

    def _go_to_match(self, left: Match | None) -> None:
        """Bring the current match into view, and mark it instead of the one that was left."""
        if self._search is None or self._typesetter is None:
            return
        if left is not None:
            self._set_lines.pop(left.serial, None)
        if (match := self._search.current) is not None and match.serial >= self._first_serial:
            self._set_lines.pop(match.serial, None)
            self._stays, self._following = True, False
            at = match.serial - self._first_serial
            self._measure(at)
            lines = self._lines_of(at)
            within = next((row for row, line in enumerate(lines) if self._typesetter.is_current(line)), 0)
            line, height = self._index.start(at) + within, self.size.height
            if not self._top <= line < self._top + height:
                self._scroll_to_line(max(self._index.first, line - height // 3))
        self._tell_search()
        self._tell_tail()
        self.refresh()

    def _tell_search(self) -> None:
        status = self._search.status if self._search is not None else ""
        if status != self._told_of_search:
            self._told_of_search = status
            self.post_message(self.SearchChanged(status))

    # Drawing

    def _style(self, name: str) -> Style:
        # A component class can neither be reversed nor have a background of its own; this one needs no colour at all.
        return CURRENT if name == "match-current" else self.get_visual_style(f"conversation--{name}", partial=True)

    def line_at(self, number: int) -> Content | None:
        """The line of a number; None if there is none."""
        if not self._blocks or not self._index.first <= number < self._index.end:
            return None
        at = self._index.find(number)
        lines, within = self._lines_of(at), number - self._index.start(at)
        return lines[within] if within < len(lines) else None

    def pointed_at(self) -> Entry | None:
        """The entry of the selected text, else of the match, else the lowest one in view; None: at the tail."""
        if self.text_selection is not None and self._blocks:
            start = self.text_selection.start
            line = self._index.first if start is None else start.y
            return self._blocks[self._index.find(min(max(line, self._index.first), self._index.end - 1))].entry
        if self._search is not None and (match := self._search.current) is not None:
            at = match.serial - self._first_serial if self._blocks else -1
            return self._blocks[at].entry if at >= 0 else None
        if self._following or not self._blocks:
            return None
        return self._blocks[self._index.find(min(self._top + self.size.height, self._index.end) - 1)].entry

    @property
    def line_numbers(self) -> range:
        """Numbers of all lines."""
        return range(self._index.first, self._index.end)

    def render_line(self, y: int) -> Strip:
        """The strip at a row of the widget."""
        width = self._width
        number = y + self._top
        base = self.visual_style
        line = self.line_at(number)
        if line is not None:
            line = self._selected(line, number)
        elif not self._entries and y == 0 and self._placeholder:
            line = Content.styled(self._placeholder, self._style("aside")).truncate(width, ellipsis=True)
        else:
            return Strip.blank(width, base.rich_style)
        segments = [Segment(text, style.rich_style) for text, style in line.render(base, end="")]
        return Strip(segments, line.cell_length).adjust_cell_length(width, base.rich_style).apply_offsets(0, number)

    def _selected(self, line: Content, number: int) -> Content:
        selection = self.text_selection
        if selection is None or (span := selection.get_span(number)) is None:
            return line
        start, end = span
        return line.stylize(
            self.screen.get_visual_style("screen--selection", partial=True), start, len(line) if end == -1 else end
        )

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, as it stands on the screen."""
        numbers = self.line_numbers
        start = Offset(0, numbers.start) if selection.start is None else selection.start
        end = Offset(self._width, numbers.stop) if selection.end is None else selection.end
        first = max(start.y, numbers.start)
        shown = (self.line_at(number) for number in range(first, min(end.y + 1, numbers.stop)))
        text = "\n".join(line.plain.rstrip() for line in shown if line is not None)
        moved = (Offset(place.x if place.y >= first else 0, max(0, place.y - first)) for place in (start, end))
        return Selection(*moved).extract(text), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw the selection."""
        self.refresh()
