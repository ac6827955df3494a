"""The editor of a recorded reply: the file changes only if the agent reads a legal action in the new reply.

What is typed and not applied stays on disk, for the next time that the turn is edited.
"""

from hashlib import sha256
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea

from llamagym_tui.demos.demonstration import Demonstration, encode
from llamagym_tui.demos.edits import legal_action, with_reply
from llamagym_tui.errors import ActionParseError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import literal
from llamagym_tui.screens.steering.prompt_editor import draft_file, read_draft, write_prompt
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.text_area import DraftArea
from llamagym_tui.state.transcript import clipped


class ReplyEditor(ModalScreen[Demonstration | None]):
    """Edits one reply of an episode; dismissed with the edited episode, or None if it stays as it is."""

    CSS_PATH = ["../widgets/dialogs.tcss", "reply_editor.tcss"]
    BINDINGS = [
        Binding(
            "ctrl+s", "apply", "Apply", tooltip="Write the reply into the file.", id="reply.apply"
        ),
        Binding(
            "ctrl+n", "turn(1)", "Next turn", tooltip="Edit the next turn instead.", id="reply.next"
        ),
        Binding(
            "ctrl+b",
            "turn(-1)",
            "Previous turn",
            tooltip="Edit the previous turn instead.",
            id="reply.before",
        ),
        Binding(
            "ctrl+r",
            "revert",
            "Revert",
            tooltip="Put the reply in place of the draft.",
            id="reply.revert",
        ),
        Binding(
            "escape",
            "leave",
            "Back",
            tooltip="Keep the reply, and the draft for later.",
            id="reply.leave",
        ),
    ]

    def __init__(self, demo: Demonstration, agent: AgentBase) -> None:
        super().__init__()
        self._demo = demo
        self._agent = agent
        self._turn = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(id="reply-observation", markup=False)
            yield DraftArea(id="draft")
            yield Static(id="editor-status", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._load()

    @property
    def _original(self) -> str:
        return literal(self._demo.replies[self._turn])

    @property
    def _draft(self) -> Path:
        return draft_file(f"reply-{sha256(encode(self._demo)).hexdigest()[:16]}-{self._turn}")

    @property
    def _changed(self) -> bool:
        return self.query_one(DraftArea).text != self._original

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Another turn can be edited only while this draft is unchanged."""
        if action == "turn" and self.is_mounted:
            to = self._turn + (1 if parameters == (1,) else -1)
            return True if 0 <= to < self._demo.length and not self._changed else None
        return True

    def action_turn(self, by: int) -> None:
        self._turn += by
        self._load()

    def action_apply(self) -> None:
        try:
            text = self.query_one(DraftArea).text
            edited = (
                with_reply(self._demo, self._turn, text, self._agent) if self._changed else None
            )
        except ActionParseError as error:
            self._show(Content.styled(literal(str(error)), "$text-error"))
        else:
            self._draft.unlink(missing_ok=True)
            self.dismiss(edited)

    def action_revert(self) -> None:
        draft = self.query_one(DraftArea)
        draft.replace(self._original, (0, 0), draft.document.end)  # an edit, which can be undone

    def action_leave(self) -> None:
        try:
            if self._changed:
                write_prompt(self._draft, self.query_one(DraftArea).text)
                again = key_of(self.app, "demos.edit", "e")
                self.notify(
                    f"Your draft of this reply is kept; {again} shows it again.", markup=False
                )
            else:
                self._draft.unlink(missing_ok=True)
        except UsageError as error:
            self._show(Content.styled(literal(f"The draft was not saved: {error}"), "$text-error"))
        else:
            self.dismiss(None)

    def _load(self) -> None:
        self.query_one(".dialog").border_title = Content(
            f"reply of turn {self._turn + 1} of {self._demo.length}"
        )
        observation = clipped(self._demo.observations[self._turn])
        self.query_one("#reply-observation", Static).update(
            Content.styled(literal(observation), ASIDE)
        )
        draft = self.query_one(DraftArea)
        draft.text = read_draft(self._draft, self._original)
        draft.move_cursor(draft.document.end)

    @on(TextArea.Changed)
    def _show_action(self) -> None:
        recorded = self._demo.actions[self._turn]
        try:
            text = self.query_one(DraftArea).text
            action = legal_action(text, self._agent, self._demo.admissible_in(self._turn))
        except ActionParseError as error:
            self._show(Content.styled(literal(str(error)), "$text-error"))
        else:
            text = f"Reads as {self._agent.action_name(action)}."
            if action != recorded:
                text += " The recorded rest did not follow from this action: the episode will end here, with reward 0."
            self._show(Content(literal(text)))
        self.refresh_bindings()

    def _show(self, content: Content) -> None:
        self.query_one("#editor-status", Static).update(content)
