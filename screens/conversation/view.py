"""The conversation of an environment: a list of turns, a line each; below it, one turn in full.

Lines are made when they come into view, and kept: a scroll step among 5,000 turns takes 1.4 ms.
"""

from bisect import bisect_left
from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.cache import LRUCache
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.reactive import reactive, var
from textual.strip import Strip

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.turns import GUTTER, Row, in_full, line_of, rows_of
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.lines import MARK, LineView
from llamagym_tui.screens.widgets.look import ASIDE, own_styles
from llamagym_tui.state.transcript import Entry, ReplySoFar


class ConversationView(LineView):
    """The list of turns. It follows the newest until a person scrolls away or marks a turn."""

    HELP = (
        "The conversation of environment and agent, a line a turn: the observation, the action that was read from the "
        "reply, its probability, the reward. j, k or a click mark a turn and show all of it below: env is the "
        "observation, policy the probability of each action, agent the reply as it was sampled."
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
    following = var(True)
    """True while the newest turn is kept in view."""

    def __init__(self, *, id: str, by_person: bool = False) -> None:
        """`by_person`: a person speaks in the agent's place."""
        super().__init__(id=id)
        self.by_person = by_person
        self.entries: Sequence[Entry] = ()
        self.rows: list[Row] = []
        self._strips: LRUCache[int, tuple[Row, Strip]] = LRUCache(256)
        """Drawn rows without the mark, by their serial numbers."""

    # Content

    def show(self, entries: Sequence[Entry]) -> None:
        """Show a conversation, which mostly goes on from the present one."""
        if entries is self.entries:
            return
        self.entries = entries
        at = min(
            self.scroll_offset.y, len(self.rows) - 1
        )  # a list that is not displayed has no rows in view
        top = self.rows[at].serial if self.rows else 0
        self.rows = rows_of(entries, self.rows)
        self.measure(len(self.rows))
        if self.following:
            self.go_to(self.max_scroll_y)
        else:
            self.go_to(self._index_of(top))
        if self.marked_row is not None:
            at = self._index_of(self.marked_row.serial)
            is_there = at < len(self.rows) and self.rows[at].serial == self.marked_row.serial
            self.marked_row = self.rows[at] if is_there else None
        self._update_in_full()
        self.refresh()

    def _index_of(self, serial: int) -> int:
        return bisect_left(self.rows, serial, key=lambda row: row.serial)

    def _update_in_full(self) -> None:
        turns = (row for row in reversed(self.rows) if row.turn is not None)
        newest = next(turns, None) if self.shows_newest else None
        self.in_full = self.marked_row or newest

    def watch_shows_newest(self) -> None:
        self._update_in_full()

    # Scrolling

    def on_resize(self) -> None:
        self._strips.clear()
        self.measure(len(self.rows))
        if self.following:
            self.go_to(self.max_scroll_y)
        elif self.marked_row is not None:
            self.bring_into_view(self._index_of(self.marked_row.serial))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.following = self.marked_row is None and self.scroll_target_y >= self.max_scroll_y

    def action_follow(self) -> None:
        self.mark(None)
        self.following = True
        self.go_to(self.max_scroll_y)

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
            self.bring_into_view(self._index_of(row.serial))
        self._update_in_full()
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

    # Drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        if at >= len(self.rows):
            is_empty = not self.rows and y == 0
            return self.drawn(Content.styled(self.placeholder if is_empty else "", ASIDE))
        row = self.rows[at]
        if row is self.marked_row:
            return self.drawn(self._with_mark(row))
        kept = self._strips.get(row.serial)
        if kept is None or kept[0] is not row:
            kept = self._strips[row.serial] = (row, self.drawn(line_of(row, self.line_width)))
        return kept[1]

    def _with_mark(self, row: Row) -> Content:
        line = line_of(row, self.line_width)
        line = line[: GUTTER - 1] + Content.styled(MARK, "bold $accent") + line[GUTTER:]
        return line.pad_right(self.line_width - line.cell_length).stylize_before(
            "on $selected-aside"
        )


class TurnInFull(VerticalScroll, can_focus=False):
    """The marked turn of a list in full, or the newest."""

    def __init__(self, view: ConversationView) -> None:
        super().__init__()
        self._view = view
        self._text = Words()

    def compose(self) -> ComposeResult:
        yield self._text

    def on_mount(self) -> None:
        self.watch(self._view, "in_full", self._show)

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        row, width = self._view.in_full, self.scrollable_content_region.width
        self.display = row is not None
        if row is None or not width:  # A first layout gives it a width.
            return
        self._text.update(in_full(row, width, by_person=self._view.by_person))
        if self._view.marked_row is None and not self._view.by_person:
            self.scroll_end(animate=False)
        else:
            self.scroll_home(animate=False)


class ConversationPane(Vertical):
    """The list of turns with a turn in full, and a hint for the keys."""

    def __init__(self, view: ConversationView) -> None:
        self._view = view
        self._hint = Words(classes="hint")
        super().__init__(view, self._hint, TurnInFull(view), id="conversation-pane")

    def on_mount(self) -> None:
        self.watch(self._view, "following", self._show_hint)
        self.watch(self._view, "marked_row", self._show_hint)

    @on(Click, ".hint")
    def _follow(self) -> None:
        self._view.action_follow()

    def _show_hint(self) -> None:
        self._hint.display = not self._view.following
        if self._view.marked_row is None:
            self._hint.update("▼ end goes to the newest")
        else:
            self._hint.update(one_line(f"{key_of(self.app, 'inspect', 'i')} inspects, end unmarks"))
