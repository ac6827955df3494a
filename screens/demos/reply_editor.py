"""The editor of a recorded reply: what stands in the file changes only when it reads as an action that there is."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.edits import legal_action, with_reply
from llamagym_tui.errors import ActionParseError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.literal import literal, literal_content
from llamagym_tui.screens.widgets.text_area import DraftArea
from llamagym_tui.state.transcript import clipped


class ReplyEditor(ModalScreen[Demonstration | None]):
    """Edits one reply of an episode; dismissed with the episode as it is to be, or None if it stays."""

    CSS_PATH = "reply_editor.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "apply", "Apply", tooltip="Write the reply into the file.", id="reply.apply"),
        Binding("ctrl+n", "turn(1)", "Next turn", tooltip="Edit the next turn instead.", id="reply.next"),
        Binding("ctrl+b", "turn(-1)", "Turn before", tooltip="Edit the turn before instead.", id="reply.before"),
        Binding("escape", "revert", "Back", tooltip="Leave the reply as it is.", id="reply.revert"),
    ]

    def __init__(self, demo: Demonstration, agent: AgentBase) -> None:
        """An editor that begins with the first turn.

        Args:
            demo: of which a reply is edited.
            agent: reads the reply.
        """
        super().__init__()
        self._demo, self._agent = demo, agent
        self._turn = 0

    def compose(self) -> ComposeResult:
        """Structure only."""
        with Vertical(id="editor-frame"):
            yield Static(id="reply-observation", markup=False)
            yield DraftArea("", soft_wrap=True, tab_behavior="focus", show_line_numbers=False, id="draft")
            yield Static(id="editor-status", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """Begin with the first turn."""
        self._load()
        self.query_one(DraftArea).focus()

    @property
    def _original(self) -> str:
        replies = [message["content"] for message in self._demo.messages if message["role"] == "assistant"]
        return literal(replies[self._turn])

    @property
    def _changed(self) -> bool:
        return self.query_one(DraftArea).text != self._original

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Another turn can be edited while this draft is as it was."""
        if action == "turn" and self.is_mounted:
            to = self._turn + (1 if parameters == (1,) else -1)
            return True if 0 <= to < self._demo.length and not self._changed else None
        return True

    def action_turn(self, by: int) -> None:
        """Edit another turn."""
        self._turn += by
        self._load()

    def action_apply(self) -> None:
        """The episode with this reply, unless it is as it was or names no action."""
        if not self._changed:
            self.dismiss(None)
            return
        try:
            self.dismiss(with_reply(self._demo, self._turn, self.query_one(DraftArea).text, self._agent))
        except ActionParseError as error:
            self._tell(Content.styled(literal(str(error)), "$text-error"))

    def action_revert(self) -> None:
        """Forget the draft."""
        self.dismiss(None)

    def _load(self) -> None:
        frame = self.query_one("#editor-frame")
        frame.border_title = Content(f"reply of turn {self._turn + 1} of {self._demo.length}")
        told = [message["content"] for message in self._demo.messages if message["role"] == "user"][self._turn]
        self.query_one("#reply-observation", Static).update(literal_content(clipped(told), "$foreground 60%"))
        draft = self.query_one(DraftArea)
        draft.text = self._original
        draft.move_cursor(draft.document.end)
        self._say_how_it_reads()

    @on(TextArea.Changed)
    def _say_how_it_reads(self) -> None:
        recorded = self._demo.actions[self._turn]
        try:
            action = legal_action(self.query_one(DraftArea).text, self._agent)
        except ActionParseError as error:
            self._tell(Content.styled(literal(str(error)), "$text-error"))
        else:
            told = f"Reads as {self._agent.action_name(action)}."
            if action != recorded:
                told += " What followed did not follow from this: the episode will end here, with reward 0."
            self._tell(Content(literal(told)))
        self.refresh_bindings()

    def _tell(self, content: Content) -> None:
        self.query_one("#editor-status", Static).update(content)
