"""The editor of the system prompt: a draft that becomes a request when it is applied, and nothing before.

Which prompt is active, and which one is only pending, is told as the trainer confirms it.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Paste
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea

from llamagym_tui.run_state import RunState
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.literal import literal


class DraftArea(TextArea):
    """A text area into which nothing harmful can be pasted."""

    async def _on_paste(self, event: Paste) -> None:
        event.prevent_default()
        event.stop()
        if result := self._replace_via_keyboard(literal(event.text), *self.selection):
            self.move_cursor(result.end_location)


class PromptEditor(ModalScreen[str | None]):
    """Edits a system prompt; dismissed with the new one, or with None if it is to stay."""

    CSS_PATH = "prompt_editor.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "apply", "Apply", tooltip="Episodes that begin from now on have this prompt."),
        Binding("escape", "revert", "Revert", tooltip="Leave the prompt as it is."),
    ]

    def __init__(self, state: RunState, system_prompt: str) -> None:
        """An editor of a prompt.

        Args:
            state: of the run.
            system_prompt: where the draft begins.
        """
        super().__init__()
        self._state = state
        self._original = literal(system_prompt)

    def compose(self) -> ComposeResult:
        """Structure only."""
        with Vertical(id="editor-frame") as frame:
            frame.border_title = "system prompt"
            yield DraftArea(self._original, soft_wrap=True, tab_behavior="focus", show_line_numbers=False, id="draft")
            yield Static(id="editor-status", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """The cursor stands at the end of the draft."""
        draft = self.query_one(DraftArea)
        draft.move_cursor(draft.document.end)
        draft.focus()
        self.show(self._state)

    def show(self, state: RunState) -> None:
        """Tell which prompt is active now."""
        self._state = state
        self.query_one("#editor-status", Static).update(Content(status_text(state)))

    def action_apply(self) -> None:
        """Ask for the draft, unless it is what there is already."""
        text = self.query_one(DraftArea).text
        self.dismiss(None if text == self._original else text)

    def action_revert(self) -> None:
        """Forget the draft."""
        self.dismiss(None)


def status_text(state: RunState) -> str:
    """Which prompt is active and what becomes of the draft."""
    if state.run is None:
        return "The model is still loading: the prompt is asked for when the run begins."
    if not state.live:
        return "The run has ended: there is nobody to take a new prompt."
    active = f"v{state.prompt_version} is active"
    if state.prompt_requested is not None:
        return f"{active}, a newer one is pending. ctrl+s replaces the pending one."
    return f"{active}. ctrl+s applies the draft from the next reset on."
