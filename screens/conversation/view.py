"""The conversation of an environment: a list of turns, a line each; below it, one turn in full.

Lines are made when they come into view, and kept: a scroll step among 5,000 turns takes 1.4 ms.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.cache import LRUCache
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.reactive import reactive, var
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import RenderOptions
from textual.widgets import Input, Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.turns import GUTTER, Row, in_full, line_of, rows_of
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE, own_styles
from llamagym_tui.state.returns import counted
from llamagym_tui.state.transcript import Entry, ReplySoFar

MARK = "▌"
"""Stands before the marked turn; it shows without colour, too."""
MATCH = "underline on $ground-match"


class ConversationView(ScrollView, can_focus=True):
    """The list of turns. It follows the newest until a person scrolls away or marks a turn."""

    ALLOW_SELECT = False
    HELP = (
        "The conversation of environment and agent, a line a turn: the observation, the action that was read from the "
        "reply, its probability, the reward. j, k or a click mark a turn and show all of it below: env is the "
        "observation, policy the probability of each action, agent the reply as it was sampled. / searches."
    )
    BINDING_GROUP_TITLE = "Conversation"
    BINDINGS = [
        Binding(
            "end,G",
            "follow",
            "Newest",
            show=False,
            tooltip="Go to the newest turn and follow it.",
            id="follow",
        )
    ]
    DEFAULT_CSS = own_styles(__file__)
    SCOPED_CSS = False  # The style sheet has the pane's rules, too.

    placeholder = reactive("")
    """Shown while there are no turns."""
    shows_newest = var(False)
    """True to show the newest turn in full while none is marked."""
    in_full = var[Row | None](None)
    """The turn that is shown in full."""
    marked_row = var[Row | None](None)
    below = var((0, True))
    """The number of rows below the view, and whether the newest is followed."""
    pattern = var[re.Pattern[str] | None](None)
    """The text that is searched for."""
    search_status = var("")

    def __init__(
        self, *, by_person: bool = False, placeholder: str = "", id: str | None = None
    ) -> None:
        """`by_person`: a person speaks in the agent's place."""
        super().__init__(id=id)
        self.by_person = by_person
        self.set_reactive(ConversationView.placeholder, placeholder)
        self.entries: Sequence[Entry] = ()
        self.rows: list[Row] = []
        self.following = True
        self._strips: LRUCache[int, tuple[Row, Strip]] = LRUCache(256)
        """Drawn rows without mark and search, by their serial numbers."""

    # Content

    def show(self, entries: Sequence[Entry]) -> None:
        """Show a conversation, which mostly goes on from the present one."""
        if entries is self.entries:
            return
        self.entries = entries
        top = self.rows[self.scroll_offset.y].serial if self.rows else 0
        self.rows = rows_of(entries, self.rows)
        self._measure()
        if self.following:
            self._go_to_row(self.max_scroll_y)
        else:
            self._go_to_row(self._index_of(top))
        if self.marked_row is not None:
            at = self._index_of(self.marked_row.serial)
            is_there = at < len(self.rows) and self.rows[at].serial == self.marked_row.serial
            self.marked_row = self.rows[at] if is_there else None
        self._update_in_full()
        self.refresh()

    def _index_of(self, serial: int) -> int:
        return bisect_left(self.rows, serial, key=lambda row: row.serial)

    def _measure(self) -> None:
        """Note the number of rows. The scrollbar is always there, so this changes no layout."""
        size = Size(self._width, len(self.rows))
        self.set_reactive(ConversationView.virtual_size, size)
        self.vertical_scrollbar.window_virtual_size = size.height

    def _update_in_full(self) -> None:
        newest = self.rows[-1] if self.rows and self.shows_newest else None
        self.in_full = self.marked_row or newest

    def watch_shows_newest(self) -> None:
        self._update_in_full()

    # Scrolling

    def on_resize(self) -> None:
        self._strips.clear()
        self._measure()
        if self.following:
            self._go_to_row(self.max_scroll_y)
        elif self.marked_row is not None:
            self._bring_into_view(self._index_of(self.marked_row.serial))

    def _go_to_row(self, row: int) -> None:
        self.scroll_to(y=row, animate=False, immediate=True)
        self._update_below()

    def _bring_into_view(self, row: int) -> None:
        top, height = self.scroll_offset.y, self.size.height
        if not top <= row < top + height:
            self._go_to_row(row if row < top else row - height + 1)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.following = self.marked_row is None and self.scroll_target_y >= self.max_scroll_y
        self._update_below()

    def _update_below(self) -> None:
        seen = self.scroll_offset.y + self.size.height
        self.below = (max(0, len(self.rows) - seen), self.following)

    def action_follow(self) -> None:
        self.mark(None)
        self.following = True
        self._go_to_row(self.max_scroll_y)

    # Marking

    @property
    def marked(self) -> ReplySoFar | None:
        """The reply of the marked turn."""
        return None if self.marked_row is None else self.marked_row.reply

    def mark(self, row: Row | None) -> None:
        """Mark a row, and stop following the newest; or mark none."""
        self.marked_row = row
        if row is not None:
            self.following = False
            self._bring_into_view(self._index_of(row.serial))
        self._update_in_full()
        self._update_below()
        self.refresh()

    def mark_next(self, by: int) -> None:
        """Mark the row above (−1) or below (1); if none is marked, the lowest in view."""
        if self.marked_row is None:
            at = min(self.scroll_offset.y + self.size.height, len(self.rows)) - 1
        else:
            at = self._index_of(self.marked_row.serial) + by
        if 0 <= at < len(self.rows):
            self.mark(self.rows[at])

    def on_click(self, event: Click) -> None:
        at = self.scroll_offset.y + event.y
        if at < len(self.rows):
            self.mark(self.rows[at])

    # Searching

    def find(self, text: str) -> None:
        """Mark the last turn in view or above that has a text; an empty text ends the search."""
        self.pattern = re.compile(re.escape(text), re.IGNORECASE) if text else None
        self.refresh()
        if self.pattern is None:
            self.search_status = ""
        else:
            lowest = self.scroll_offset.y + self.size.height - 1
            self._go_to_match(lowest, 0)

    def find_next(self, by: int) -> None:
        """Go to the match above (−1) or below (1)."""
        if self.pattern is not None and self.marked_row is not None:
            self._go_to_match(self._index_of(self.marked_row.serial), by)

    def _go_to_match(self, near: int, by: int) -> None:
        assert self.pattern is not None
        matches = [at for at, row in enumerate(self.rows) if row.has(self.pattern)]
        if not matches:
            self.search_status = "no match"
            return
        here = max(0, bisect_left(matches, near + 1) - 1)
        which = (here + by) % len(matches)
        self.search_status = f"{which + 1:,} of {len(matches):,}"
        self.mark(self.rows[matches[which]])

    # Drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        if at >= len(self.rows):
            is_empty = not self.rows and y == 0
            return self._drawn(Content.styled(self.placeholder if is_empty else "", ASIDE))
        row = self.rows[at]
        is_plain = self.pattern is None and row is not self.marked_row
        if not is_plain:
            return self._drawn(self._with_marks(row))
        kept = self._strips.get(row.serial)
        if kept is None or kept[0] is not row:
            kept = self._strips[row.serial] = (row, self._drawn(line_of(row, self._width)))
        return kept[1]

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    def _with_marks(self, row: Row) -> Content:
        line = line_of(row, self._width)
        if self.pattern is not None:
            line = line.highlight_regex(self.pattern, style=MATCH)
        if row is self.marked_row:
            line = line[: GUTTER - 1] + Content.styled(MARK, "bold $accent") + line[GUTTER:]
            line = line.pad_right(self._width - line.cell_length)
            line = line.stylize_before("on $selected-aside")
        return line

    def _drawn(self, line: Content) -> Strip:
        line = line.truncate(self._width, ellipsis=True, pad=True)
        options = RenderOptions(self._get_style, {})
        (strip,) = line.render_strips(self._width, 1, self.visual_style, options)
        return strip


class TurnInFull(VerticalScroll, can_focus=False):
    """The marked turn of a list in full, or the newest."""

    def __init__(self, view: ConversationView) -> None:
        super().__init__()
        self._view = view
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield self._text

    def on_mount(self) -> None:
        self.watch(self._view, "in_full", self._show)
        self.watch(self._view, "pattern", self._show)

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        row, width = self._view.in_full, self.scrollable_content_region.width
        self.display = row is not None
        if row is None or not width:  # A first layout gives it a width.
            return
        text = in_full(row, width, by_person=self._view.by_person)
        if self._view.pattern is not None:
            text = text.highlight_regex(self._view.pattern, style=MATCH)
        self._text.update(text)
        if self._view.marked_row is None:
            self.scroll_end(animate=False)
        else:
            self.scroll_home(animate=False)


class SearchLine(Horizontal):
    def compose(self) -> ComposeResult:
        yield Static("/", classes="slash", markup=False)
        yield SentenceInput(placeholder="search; ↑ ↓ go through the matches, enter leaves the line")
        yield Static("", classes="status", markup=False)


class ConversationPane(Vertical):
    """The list of turns with a turn in full, a hint for the keys and, after `/`, a search."""

    BINDING_GROUP_TITLE = "Conversation"
    BINDINGS = [
        Binding(
            "slash", "search", "Search", tooltip="Search the conversation.", id="search", show=False
        ),
        Binding(
            "n,up", "match(-1)", "Older match", tooltip="Go to the match above.", id="search.older"
        ),
        Binding(
            "N,down", "match(1)", "Newer match", tooltip="Go to the match below.", id="search.newer"
        ),
        Binding("escape", "end_search", "End search", tooltip="End the search.", id="search.end"),
    ]

    def __init__(self, view: ConversationView, *, id: str | None = None) -> None:
        self._view = view
        self._hint = Static(classes="hint", markup=False)
        super().__init__(view, self._hint, TurnInFull(view), id=id)

    def on_mount(self) -> None:
        self.watch(self._view, "search_status", self._show_search_status, init=False)
        self.watch(self._view, "below", self._show_hint, init=False)
        self.watch(self._view, "marked_row", self._show_hint, init=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        is_open = any(line.display for line in self.query(SearchLine))
        return is_open if action in ("match", "end_search") else True

    async def action_search(self) -> None:
        if not self.query(SearchLine):
            await self.mount(SearchLine())
        self.query(SearchLine).set(display=True)
        self.query_one(Input).focus()
        self.refresh_bindings()

    def action_match(self, by: int) -> None:
        self._view.find_next(by)

    def action_end_search(self) -> None:
        self._view.find("")
        self._view.focus()
        with self.prevent(Input.Changed):
            self.query_one(Input).value = ""
        self.query(SearchLine).set(display=False)
        self.refresh_bindings()

    @on(Input.Changed)
    def _find(self, message: Input.Changed) -> None:
        message.stop()
        self._view.find(message.value)

    @on(Input.Submitted)
    def _leave_the_line(self, message: Input.Submitted) -> None:
        message.stop()
        self._view.focus()

    @on(Click, ".hint")
    def _follow(self) -> None:
        self._view.action_follow()

    def _show_search_status(self, status: str) -> None:
        for shown in self.query(".status").results(Static):
            shown.update(one_line(status))

    def _show_hint(self) -> None:
        rows, following = self._view.below
        self._hint.display = not following
        if self._view.marked_row is None:
            self._hint.update(f"▼ {counted(rows, 'newer line')} · end goes to the newest")
            return
        inspect = key_of(self.app, "inspect", "i")
        self._hint.update(one_line(f"{inspect} inspects, end unmarks"))
