"""A conversation with how many messages wait below it, and the line in which one searches, mounted when one does."""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import counted
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.screens.widgets.sentence_input import SentenceInput


class MoreBelow(Static):
    def on_click(self) -> None:
        self.screen.query_one(ConversationView).action_follow()


class SearchLine(Horizontal):
    """A text, and which match of how many is seen; without a search it is there, but not shown."""

    def compose(self) -> ComposeResult:
        yield Static("/", classes="slash", markup=False)
        yield SentenceInput(placeholder="search; ↑ ↓ go through the matches, enter leaves the line")
        yield Static("", classes="status", markup=False)


class ConversationPane(Vertical):
    BINDING_GROUP_TITLE = "Conversation"
    BINDINGS = [
        Binding(
            "slash", "search", "Search", tooltip="Search the conversation.", id="search", show=False
        ),
        Binding(
            "n,up",
            "match(-1)",
            "Older match",
            tooltip="Go to the match before this one.",
            id="search.older",
        ),
        Binding(
            "N,down",
            "match(1)",
            "Newer match",
            tooltip="Go to the match after this one.",
            id="search.newer",
        ),
        Binding(
            "escape", "end_search", "End search", tooltip="Take the marks away.", id="search.end"
        ),
    ]
    DEFAULT_CSS = own_styles(__file__)

    def __init__(self, view: ConversationView, *, id: str | None = None) -> None:
        self._view = view
        self._below = MoreBelow(markup=False)
        super().__init__(view, self._below, id=id)

    def on_mount(self) -> None:
        self.watch(self._view, "search_status", self._show_which_match, init=False)
        self.watch(self._view, "tail", self._show_what_is_below, init=False)

    @on(ConversationView.Marked)
    def show_what_a_mark_is_for(self) -> None:
        self._show_what_is_below(self._view.tail)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Matches are gone through, and the search ended, while there is one."""
        is_open = any(line.display for line in self.query(SearchLine))
        return is_open if action in ("match", "end_search") else True

    async def action_search(self) -> None:
        """Open the line, which stays for the next search, or go back to it."""
        if not self.query(SearchLine):
            with self.app.batch_update():  # one painting, not one of each part
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
    def find(self, message: Input.Changed) -> None:
        message.stop()
        self._view.find(message.value)

    @on(Input.Submitted)
    def leave_the_line(self, message: Input.Submitted) -> None:
        message.stop()
        self._view.focus()

    def _show_which_match(self, status: str) -> None:
        for shown in self.query(".status").results(Static):
            shown.update(one_line(status))

    def _show_what_is_below(self, tail: tuple[bool, int]) -> None:
        following, waiting = tail
        below = f"{counted(waiting, 'new message')} below" if waiting else "scrolled back"
        self._below.display = not following
        if self._view.marked is None:
            self._below.update(f"▼ {below} · end or G goes to the newest")
            return
        inspect = key_of(self.app, "inspect", "i")
        keep = key_of(self.app, "keep", "K")
        unfold = key_of(self.app, "unfold", "enter") if self._view.folds else ""
        way = "folds" if self._view.is_open else "unfolds"
        parts = [
            f"{unfold} {way}" if unfold else "",
            f"{inspect} inspects",
            f"{keep} keeps",
            "end unmarks",
        ]
        self._below.update(one_line(", ".join(filter(None, parts))))
