"""A conversation with how many messages wait below it, and the line in which one searches.

Both are mounted when they are needed first, so that the first frame does not wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from llamagym_tui.returns import counted
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.widgets.look import own_styles

if TYPE_CHECKING:
    from llamagym_tui.screens.conversation.search_line import SearchLine


class MoreBelow(Static):
    DEFAULT_CSS = own_styles(__file__)

    def __init__(self, view: ConversationView) -> None:
        super().__init__(markup=False)
        self._view = view

    def show(self, waiting: int) -> None:
        below = f"{counted(waiting, 'new message')} below" if waiting else "scrolled back"
        self.update(f"▼ {below} · end or G goes to the newest")

    def on_click(self) -> None:
        self._view.action_follow()


class ConversationPane(Vertical):
    BINDING_GROUP_TITLE = "Conversation"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", show=False, tooltip="Search the conversation.", id="search"),
        Binding("n,up", "match(-1)", "Older match", tooltip="Go to the match before this one.", id="search.older"),
        Binding("N,down", "match(1)", "Newer match", tooltip="Go to the match after this one.", id="search.newer"),
        Binding("escape", "end_search", "End search", tooltip="Take the marks away.", id="search.end"),
    ]

    def __init__(self, view: ConversationView, *, id: str | None = None) -> None:
        super().__init__(view, id=id)
        self._view = view
        self._line: SearchLine | None = None
        self._below: MoreBelow | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Matches are gone through, and the search ended, while there is one."""
        return self._line is not None if action in ("match", "end_search") else True

    async def action_search(self) -> None:
        """Open the line, or go back to it."""
        from llamagym_tui.screens.conversation.search_line import SearchLine

        if self._line is not None:
            self._line.take_focus()
            return
        self._line = SearchLine(self._view)
        with self.app.batch_update():  # one painting, not one of each part
            await self.mount(self._line)
        self.refresh_bindings()

    def action_match(self, by: int) -> None:
        self._view.find_next(by)

    async def action_end_search(self) -> None:
        line, self._line = self._line, None
        self._view.find("")
        self._view.focus()
        if line is not None:
            await line.remove()
        self.refresh_bindings()

    @on(ConversationView.SearchChanged)
    def show_which_match(self, message: ConversationView.SearchChanged) -> None:
        if self._line is not None and self._line.is_mounted:
            self._line.show(message.status)

    @on(ConversationView.TailChanged)
    async def show_what_is_below(self, message: ConversationView.TailChanged) -> None:
        if message.following:
            below, self._below = self._below, None
            if below is not None:
                await below.remove()
            return
        if self._below is None:
            self._below = MoreBelow(self._view)
            await self.mount(self._below, after=self._view)
        self._below.show(message.waiting)
