"""The conversation of an environment: one scrolling widget that draws lines, however long the conversation is.

The lines of every entry are counted; only those that are seen are set, and the last `KEPT` entries are kept so.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding
from textual.cache import LRUCache
from textual.content import Content
from textual.events import Click
from textual.geometry import Offset, Size
from textual.message import Message
from textual.reactive import reactive, var
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style

from llamagym_tui.protocol.events import EpisodeStarted
from llamagym_tui.screens.conversation.text_search import Match, TextSearch
from llamagym_tui.screens.conversation.turn_line import Turn, turn_of
from llamagym_tui.screens.conversation.typesetting import (
    GUTTER,
    NARROWEST,
    Block,
    Fold,
    Highlight,
    LineIndex,
    Typesetter,
    block,
)
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.state.transcript import Entry, ReplySoFar

CURRENT = Style(bold=True, reverse=True)
"""The style of the match that is looked at."""
KEPT = 512
"""Entries whose lines are kept."""
MARK = "▌"
"""Stands before the lines of the marked reply's turn."""
APART = 8
"""Entries, at most, between a reply and what else is shown of its turn."""


class ConversationView(ScrollView, can_focus=True):
    ALLOW_SELECT = True
    HELP = (
        "The conversation of environment and agent: env is the observation, agent the reply as it was sampled, action "
        "what the environment got of it, how it was read and what it earned. At a slower pace policy shows how "
        "probable each action is before the reply. The end is followed until you scroll away; / searches; text is "
        "selected with the mouse and copied with ctrl+c. A click, j and k mark a reply; at full speed each turn is one "
        "line, which enter or a second click unfolds."
    )
    BINDING_GROUP_TITLE = "Conversation"
    BINDINGS = [
        Binding(
            "end,G",
            "follow",
            "Newest",
            show=False,
            tooltip="To the newest line, and follow it.",
            id="follow",
        ),
        Binding(
            "enter",
            "unfold",
            "Unfold",
            show=False,
            tooltip="All of the marked turn, or its line alone.",
            id="unfold",
        ),
    ]
    DEFAULT_CSS = own_styles(__file__)
    COMPONENT_CLASSES: ClassVar[set[str]] = set(re.findall(r"conversation--[\w-]+", DEFAULT_CSS))

    placeholder = reactive("")
    """Shown while there are no entries."""
    tail = var((True, 0))
    """Whether the tail is followed, and how many messages came below and were not seen yet."""
    search_status = var("")
    """Which match of how many is looked at, for people; empty without a search."""

    class Marked(Message):
        """Another reply is marked now, or none; or its turn is unfolded, or folded."""

    def __init__(
        self,
        *,
        by_person: bool = False,
        can_mark: bool = False,
        placeholder: str = "",
        id: str | None = None,
    ) -> None:
        """`by_person`: a person speaks in the agent's place; `can_mark`: a click marks a reply."""
        super().__init__(id=id)
        self._by_person = by_person
        self.set_reactive(ConversationView.placeholder, placeholder)
        self.entries: Sequence[Entry] = ()
        self._blocks: list[Block] = []
        self._index = LineIndex()
        self._typesetter: Typesetter | None = None
        self._set_lines: LRUCache[int, tuple[Block, Highlight | None, list[Content]]] = LRUCache(
            KEPT
        )
        """Lines by serial of their entry, and what they were set of."""
        self._strips: LRUCache[int, tuple[Content, Strip]] = LRUCache(KEPT)
        """What was painted of a line, by its number, at the present width and without a selection."""
        self._look_of_lines: object = None
        """The colours of the lines that are kept."""
        self.following = True
        """Whether the newest line is kept in view."""
        self._seen = 0
        """Messages up to the newest entry that was in view."""
        self.search: TextSearch | None = None
        self._stays = False
        """Whether a match or a marked reply is looked at, so that the end of the lines is not followed."""
        self._can_mark = can_mark
        self._marked: Entry | None = None
        """The entry of the marked reply."""
        self.folds = False
        """Whether each turn is one line until a person unfolds it."""
        self._open: set[Turn] = set()
        """Turns that a person has unfolded."""
        self._found: Turn | None = None
        """The turn that a search has unfolded."""
        self._found_at = 0
        """Serial of an entry of it."""
        self._held: int | None = None
        """Serial of the entry that stays at the upper edge while what follows it comes."""
        self._held_y = 0.0
        """Where it was scrolled to: elsewhere, a person has scrolled."""

    # Content

    def show(self, entries: Sequence[Entry]) -> None:
        """Show a conversation of which the present one is, mostly, the beginning."""
        if entries is self.entries:
            return
        self._note_following()
        self.entries = entries
        self._update()

    def notify_style_update(self) -> None:
        """Every line is set again if colours changed."""
        super().notify_style_update()
        look = (self.app.theme_variables, self.visual_style)
        if look != self._look_of_lines:
            self._look_of_lines = look
            self._set_lines.clear()
            self._strips.clear()
            self.refresh()

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Nothing: no style depends on the focus, and there are many to update."""

    def on_resize(self) -> None:
        """A new width wraps everything again; what is in view stays there."""
        if self._typesetter is None or self._typesetter.width != self._width:
            self._wrap_all()
        elif (
            self.following and self.scroll_target_y >= self.scroll_y
        ):  # nobody has just begun to scroll away
            self._to_end()

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    def _wrap_all(self) -> None:
        if self._width < GUTTER + NARROWEST:
            return
        top = None if self.following or not self._blocks else self._index.find(self._top)
        self._typesetter = Typesetter(self._width, self._style, by_person=self._by_person)
        self._set_lines.clear()
        self._strips.clear()
        self._index = LineIndex()
        for shown in self._blocks:
            self._index.add(shown.lines(self._typesetter.room))
        if self.is_attached and self in self.screen.selections:  # it was of other lines
            self.screen.selections = {
                widget: of for widget, of in self.screen.selections.items() if widget is not self
            }
        self._update()
        if top is not None and top < len(self._index):
            self._scroll_to_line(self._index.start(top))

    def _update(self) -> None:
        """Bring the blocks up to the entries, and the scroll position up to the lines."""
        if self._typesetter is None:
            self._wrap_all()
            return
        top = self._top
        if self.entries:
            gone = bisect_left(
                self._blocks, self.entries[0].serial, key=lambda each: each.entry.serial
            )
            del self._blocks[:gone]
            self._index.drop_first(gone)
        while self._blocks and not self._is_last_shown_unchanged():
            self._blocks.pop()
            self._index.drop_last()
        while self.folds and self._goes_on():
            self._blocks.pop()
            self._index.drop_last()
        if not self._blocks:
            self._seen = 0
        for at in range(len(self._blocks), len(self.entries)):
            self._blocks.append(self._block(at))
            self._index.add(self._blocks[-1].lines(self._typesetter.room))
        self._follow_marked()
        if self._held is not None and self._blocks:
            self._scroll_to_held()
        elif self.following:
            self._to_end()
        else:
            self._scroll_to_line(max(top, self._index.first))
        self._look()
        self._report_tail()
        self.refresh()

    def _is_last_shown_unchanged(self) -> bool:
        at = len(self._blocks) - 1
        return at < len(self.entries) and self._blocks[at].entry is self.entries[at]

    def _goes_on(self) -> bool:
        """Whether the next entry is of the turn of the last block, so that the line of that turn is another one now."""
        count = len(self._blocks)
        if not count or count == len(self.entries):
            return False
        turn = turn_of(self._blocks[-1].entry)
        return turn is not None and turn == turn_of(self.entries[count])

    # Folding

    def fold(self, folds: bool) -> None:
        """Show each turn as one line that unfolds, or all of it; what is in view stays there."""
        if folds == self.folds:
            return
        self.folds = folds
        if self._typesetter is not None:
            self._make_blocks(range(len(self._blocks)))
            self._wrap_all()

    def action_unfold(self) -> None:
        """Unfold the marked turn, or fold it; without a marked one, the lowest in view."""
        if self._marked is None:
            self.mark_next(-1)
        marked = self._marked
        if self.folds and marked is not None and (turn := turn_of(marked)) is not None:
            self._open ^= {turn}
            at = marked.serial - self._blocks[0].entry.serial
            self._unfolded(at)
            self._bring_into_view(at)
            self.post_message(self.Marked())

    def _unfolded(self, at: int) -> None:
        """Show the turn of an entry as it is folded now; lines above stay where they are."""
        of_turn = self._of_turn(at)
        self._make_blocks(of_turn)
        assert self._typesetter is not None
        for other in of_turn:
            self._index.change(other, self._blocks[other].lines(self._typesetter.room))
        self._measure()
        self.refresh()

    def _make_blocks(self, which: Iterable[int]) -> None:
        for at in which:
            self._blocks[at] = self._block(at)

    def _block(self, at: int) -> Block:
        before = self._blocks[at - 1] if at else None
        entry = self.entries[at]
        turn = turn_of(entry) if self.folds else None
        fold = None
        if turn is not None:
            of_turn = list[Entry]()
            if not at or turn_of(self.entries[at - 1]) != turn:
                after = (self.entries[other] for other in range(at, len(self.entries)))
                of_turn = list(takewhile(lambda each: turn_of(each) == turn, after))
            is_open = turn in self._open or turn == self._found
            fold = Fold(turn, [each.fact for each in of_turn], is_open)
        return block(entry, before, by_person=self._by_person, fold=fold)

    # Scrolling

    @property
    def _top(self) -> int:
        """Number of the line at the upper edge."""
        return self._index.first + self.scroll_offset.y

    @property
    def _lowest(self) -> Block:
        """The lowest block in view. There is at least one."""
        return self._blocks[self._index.find(self._top + self.size.height - 1)]

    def _measure(self) -> None:
        """Note how many lines there are. Once there is a scrollbar, more of them change no layout."""
        size = Size(self._width, len(self.line_numbers))
        if (
            self.show_vertical_scrollbar
            and min(size.height, self.virtual_size.height) > self.size.height
        ):
            self.set_reactive(ConversationView.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = size.height
        else:
            self.virtual_size = size

    def _to_end(self) -> None:
        self._measure()
        self.scroll_end(animate=False, immediate=True, x_axis=False)

    def _scroll_to_line(self, line: int) -> None:
        self._measure()
        if line - self._index.first != self.scroll_offset.y:
            self.scroll_to(y=line - self._index.first, animate=False, immediate=True)

    def hold(self, serial: int) -> None:
        """Have an entry at the upper edge and what follows it below, until a person scrolls."""
        self.mark(None)
        self._stays = False
        self._held = serial
        if self._blocks and self._typesetter is not None:
            self._scroll_to_held()
            self._report_tail()

    def _scroll_to_held(self) -> None:
        assert self._held is not None
        at = max(0, self._held - self._blocks[0].entry.serial)
        self._measure()
        self._held_y = min(self._index.start(at) - self._index.first, self.max_scroll_y)
        self.scroll_to(y=self._held_y, animate=False, immediate=True)

    def action_follow(self) -> None:
        self.mark(None)
        self._held = None
        self.following = True
        self._stays = False
        self._to_end()
        self._report_tail()

    def action_page_up(self) -> None:
        """A page towards the beginning, at once: to glide there is to paint ten pages."""
        self._turn_page(-1)

    def action_page_down(self) -> None:
        self._turn_page(1)

    def _turn_page(self, by: int) -> None:
        self.scroll_to(y=self.scroll_y + by * self.size.height, animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling away ends the following of the tail; scrolling back to the end begins it again."""
        super().watch_scroll_y(old_value, new_value)
        if self._held is not None and new_value != self._held_y:
            self._held = None
        self._note_following()
        self._report_tail()

    def _note_following(self) -> None:
        self.following = not self._stays and self.scroll_target_y >= self.max_scroll_y

    def _report_tail(self) -> None:
        waiting = 0
        if self._blocks:
            newest = self._blocks[-1]
            self._seen = max(
                min(self._seen, newest.messages),
                (newest if self.following else self._lowest).messages,
            )
            waiting = newest.messages - self._seen
        self.tail = (self.following, waiting)

    # Marking

    @property
    def marked(self) -> ReplySoFar | None:
        """The reply that a person has marked."""
        fact = self._marked.fact if self._marked is not None else None
        return fact if isinstance(fact, ReplySoFar) else None

    @property
    def is_open(self) -> bool:
        """Whether a person has unfolded the turn of the marked reply."""
        return self._marked is not None and turn_of(self._marked) in self._open

    def mark(self, entry: Entry | None) -> None:
        """Mark a reply, and no other one; while one is marked, the end of the lines is not followed."""
        if entry is self._marked:
            return
        self._marked = entry
        if entry is not None:
            self._held = None
            self._stays = True
            self.following = False
            self._report_tail()
        self.refresh()
        self.post_message(self.Marked())

    def mark_next(self, by: int) -> None:
        """Mark the next reply up (−1) or down (1); without a marked one, the lowest in view."""
        if not self._blocks or self._typesetter is None:
            return
        if self._marked is None:
            lowest = self._lowest.entry.serial - self._blocks[0].entry.serial
            found = self._reply_of(lowest)
            if found is None:
                found = self._reply_from(lowest, -1)
        else:
            found = self._reply_from(self._marked.serial - self._blocks[0].entry.serial + by, by)
        if found is not None:
            self.mark(self._blocks[found].entry)
            self._bring_into_view(found)

    def _reply_from(self, at: int, by: int) -> int | None:
        """The first entry that is a reply, from an index on, up or down."""
        while 0 <= at < len(self._blocks):
            if isinstance(self._blocks[at].entry.fact, ReplySoFar):
                return at
            at += by
        return None

    def _reply_of(self, at: int) -> int | None:
        """The reply of the turn that an entry is of; of one that is of no turn, the last one before it."""
        if turn_of(self._blocks[at].entry) is None:
            return self._reply_from(at, -1)
        for other in sorted(self._of_turn(at), key=lambda other: abs(other - at)):
            if isinstance(self._blocks[other].entry.fact, ReplySoFar):
                return other
        return None

    def _of_turn(self, at: int) -> list[int]:
        """The entries near one that are of the same turn, itself among them."""
        turn = turn_of(self._blocks[at].entry)
        near = range(max(0, at - APART), min(len(self._blocks), at + APART + 1))
        return [other for other in near if turn_of(self._blocks[other].entry) == turn]

    def _bring_into_view(self, at: int) -> None:
        """Scroll as little as shows all that is of a reply's turn."""
        of_turn = self._of_turn(at)
        first, last = self._index.start(of_turn[0]), self._index.start(of_turn[-1] + 1)
        if last > self._top + self.size.height:
            self._scroll_to_line(last - self.size.height)
        if first < self._top:
            self._scroll_to_line(first)

    def _is_marked(self, entry: Entry) -> bool:
        """Whether an entry is of the marked reply's turn."""
        marked = self._marked
        if marked is None or abs(entry.serial - marked.serial) > APART:
            return False
        if isinstance(entry.fact, EpisodeStarted) and not self.folds:
            return False  # a rule has no place for the bar
        return turn_of(entry) == turn_of(marked)

    def _follow_marked(self) -> None:
        """Bring the marked entry up to date; where the oldest entries have gone with it, no reply is marked."""
        if self._marked is None:
            return
        first = self._blocks[0].entry.serial if self._blocks else self._marked.serial + 1
        at = self._marked.serial - first
        if 0 <= at < len(self._blocks):
            self._marked = self._blocks[at].entry
        else:
            self._stays = False
            self.mark(None)

    def on_click(self, event: Click) -> None:
        """Mark the reply of the turn under the mouse, unless a text was selected with it."""
        number = self._top + event.y
        if not self._can_mark or self.text_selection is not None or number not in self.line_numbers:
            return
        found = self._reply_of(self._index.find(number))
        if found is None:
            return
        if self._blocks[found].entry is self._marked:
            self.action_unfold()
        else:
            self.mark(self._blocks[found].entry)

    # Searching

    def find(self, text: str) -> None:
        """Highlight a text everywhere and go to its last place up to what is in view; an empty text ends the search."""
        before = self.search
        self.search = None
        self._stays = False
        self._unfold_found(None)
        if text:
            origin = self._lowest.entry.serial if self._blocks else -1
            self.search = TextSearch(text, origin, before)
            self._look()
        self._report_search()
        self.refresh()

    def find_next(self, by: int) -> None:
        if self.search is not None and len(self.search) and self._blocks:
            self.search.step(by)
            self._go_to_match()

    def _look(self) -> None:
        """Search the entries that were not searched yet; a reply that still grows is searched when it is whole."""
        if self.search is None or not self._blocks:
            return
        before, newest, first = (
            self.search.current,
            self._blocks[-1].entry,
            self._blocks[0].entry.serial,
        )
        grows = isinstance(newest.fact, ReplySoFar) and not newest.fact.done
        self.search.look(
            first, newest.serial - grows, lambda serial: self._blocks[serial - first].searched
        )
        if before is None and self.search.current is not None:
            self._go_to_match()
        self._report_search()

    def _at_match(self, match: Match) -> int:
        """Index of the entry of a match."""
        return match.serial - self._blocks[0].entry.serial

    def _highlight(self, serial: int) -> Highlight | None:
        if self.search is None:
            return None
        current = self.search.current
        nth = current.nth if current is not None and current.serial == serial else None
        return Highlight(self.search.pattern, nth)

    def _go_to_match(self) -> None:
        """Bring the current match into view."""
        if self.search is None or self._typesetter is None:
            return
        if (match := self.search.current) is not None:
            self._stays = True
            self.following = False
            at = self._at_match(match)
            self._unfold_found(at)
            within = next(
                (
                    n
                    for n, line in enumerate(self._lines_of(at))
                    if self._typesetter.is_current(line)
                ),
                0,
            )
            line, height = self._index.start(at) + within, self.size.height
            if not self._top <= line < self._top + height:
                self._scroll_to_line(max(self._index.first, line - height // 3))
        self._report_search()
        self._report_tail()
        self.refresh()

    def _unfold_found(self, at: int | None) -> None:
        """Have the turn of a match unfolded, and no other one that was so for a match alone."""
        turn = turn_of(self._blocks[at].entry) if at is not None and self.folds else None
        if turn == self._found:
            return
        first = self._blocks[0].entry.serial if self._blocks else 0
        before = self._found_at - first if self._found is not None else -1
        self._found = turn
        for place in (at, before):
            if place is not None and 0 <= place < len(self._blocks):
                self._unfolded(place)
        if at is not None:
            self._found_at = self._blocks[at].entry.serial

    def _report_search(self) -> None:
        self.search_status = self.search.status if self.search is not None else ""

    # Drawing

    def _style(self, name: str) -> Style:
        # A component class can neither be reversed nor have a background of its own; this one needs no colour at all.
        return (
            CURRENT
            if name == "match-current"
            else self.get_visual_style(f"conversation--{name}", partial=True)
        )

    def _lines_of(self, at: int) -> list[Content]:
        assert self._typesetter is not None
        shown, serial = self._blocks[at], self._blocks[at].entry.serial
        highlight, kept = self._highlight(serial), self._set_lines.get(serial)
        if kept is None or kept[0] is not shown or kept[1] != highlight:
            kept = self._set_lines[serial] = (
                shown,
                highlight,
                self._typesetter.lines(shown, highlight),
            )
        return kept[2]

    def line_at(self, number: int) -> Content | None:
        if number not in self.line_numbers:
            return None
        at = self._index.find(number)
        lines, within = self._lines_of(at), number - self._index.start(at)
        return lines[within] if within < len(lines) else None

    def pointed_at(self) -> Entry | None:
        """The entry of the selected text, the marked reply, the match, or the lowest in view; None: at the tail."""
        if not self._blocks:
            return None
        if self.text_selection is not None:
            start = self.text_selection.start
            return self._blocks[
                self._index.find(self._index.first if start is None else start.y)
            ].entry
        if self._marked is not None:
            return self._marked
        if self.search is not None and (match := self.search.current) is not None:
            return self._blocks[self._at_match(match)].entry
        return None if self.following else self._lowest.entry

    @property
    def line_numbers(self) -> range:
        return range(self._index.first, self._index.end)

    def render_line(self, y: int) -> Strip:
        width, number, base = self._width, y + self._top, self.visual_style
        plain = line = self.line_at(number)
        if line is not None:
            is_marked = self._is_marked(self._blocks[self._index.find(number)].entry)
            kept = self._strips.get(number)
            is_plain = self.text_selection is None and not is_marked
            if is_plain and kept is not None and kept[0] is line:
                return kept[1]
            if is_marked:
                base += self._style("marked")
                line = self._with_mark(line)
            line = self._selected(line, number)
        elif not self.entries and y == 0 and self.placeholder:
            line = Content.styled(self.placeholder, self._style("aside")).truncate(
                width, ellipsis=True
            )
        else:
            return Strip.blank(width, base.rich_style)
        segments = [Segment(text, style.rich_style) for text, style in line.render(base, end="")]
        strip = (
            Strip(segments, line.cell_length)
            .adjust_cell_length(width, base.rich_style)
            .apply_offsets(0, number)
        )
        if plain is line:
            self._strips[number] = line, strip
        return strip

    def _with_mark(self, line: Content) -> Content:
        """A line of the marked turn, with a bar before its text: it is seen without colour, too."""
        return Content.assemble(
            line[: GUTTER - 1], Content.styled(MARK, self._style("mark")), line[GUTTER:]
        )

    def _selected(self, line: Content, number: int) -> Content:
        selection = self.text_selection
        if selection is None or (span := selection.get_span(number)) is None:
            return line
        start, end = span
        return line.stylize(
            self.screen.get_visual_style("screen--selection", partial=True),
            start,
            len(line) if end == -1 else end,
        )

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, as it stands on the screen."""
        numbers = self.line_numbers
        start = Offset(0, numbers.start) if selection.start is None else selection.start
        end = Offset(self._width, numbers.stop) if selection.end is None else selection.end
        first = max(start.y, numbers.start)
        shown = (self.line_at(number) for number in range(first, min(end.y + 1, numbers.stop)))
        text = "\n".join(line.plain.rstrip() for line in shown if line is not None)
        moved = (
            Offset(place.x if place.y >= first else 0, max(0, place.y - first))
            for place in (start, end)
        )
        return Selection(*moved).extract(text), "\n"
