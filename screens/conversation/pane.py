"""A conversation with how many messages wait below it, and the line in which one searches, mounted when one does."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static

from llamagym_tui.returns import counted
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.widgets.key_bar import own_keys
from llamagym_tui.screens.widgets.look import own_styles

if TYPE_CHECKING:
    from llamagym_tui.screens.conversation.search_line import SearchLine


class MoreBelow(Static):
    DEFAULT_CSS = own_styles(__file__)

    def __init__(self, view: ConversationView) -> None:
        super().__init__(markup=False)
        self._view = view

    def on_click(self) -> None:
        self._view.action_follow()


class ConversationPane(Vertical):
    BINDING_GROUP_TITLE = "Conversation"
    BINDINGS: ClassVar[list[BindingType]] = own_keys(__file__)

    def __init__(self, view: ConversationView, *, id: str | None = None) -> None:
        self._view, self._below = view, MoreBelow(view)
        super().__init__(view, self._below, id=id)
        self._line: SearchLine | None = None

    def on_mount(self) -> None:
        self.watch(self._view, "search_status", self._show_which_match, init=False)
        self.watch(self._view, "tail", self._show_what_is_below, init=False)

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

    def _show_which_match(self, status: str) -> None:
        if self._line is not None and self._line.is_mounted:
            self._line.show(status)

    def _show_what_is_below(self, tail: tuple[bool, int]) -> None:
        following, waiting = tail
        below = f"{counted(waiting, 'new message')} below" if waiting else "scrolled back"
        self._below.display = not following
        self._below.update(f"▼ {below} · end or G goes to the newest")
