"""The wheel: a person acts in the watched environment in the agent's place, while the run waits at their turns.

Shows the run's own conversation, what the agent would say, and the actions on keys. The trainer steps the
environment; a key acts only in a turn that the trainer has said waits. Closes when the wheel is let go.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import DescendantFocus, Key, ScreenResume
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.protocol.commands import Act, LetGo, Resume, TakeWheel
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.wheel_texts import agent_text, choices_text, header_text
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.key_bar import KeyBar, moved_key
from llamagym_tui.screens.widgets.literal import literal
from llamagym_tui.screens.widgets.sentence_input import SentenceInput
from llamagym_tui.screens.widgets.state_text import StateText
from llamagym_tui.screens.widgets.too_small import TooSmall
from llamagym_tui.state.run import RunState


class WheelHeader(StateText):
    """The row that says who acts."""

    def content_at(self, width: int) -> Content:
        """The row at a width."""
        return header_text(self.state, width)


class WheelScreen(Screen[None]):
    """A person at the wheel."""

    CSS_PATH = "wheel.tcss"
    BINDING_GROUP_TITLE = "Wheel"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "reason", "Say why", tooltip="Write a sentence that your reply begins with.", id="wheel.reason"),
        Binding("enter", "end_reason", "Done", tooltip="The sentence stands; choose.", priority=True, id="wheel.done"),
        Binding("space", "resume", "Go on", tooltip="End the pause.", id="wheel.resume"),
        Binding("escape,w", "let_go", "Let go", tooltip="Let the agent act again.", id="wheel.let_go"),
    ]

    def __init__(self, state: RunState) -> None:
        """A screen that requests the wheel when it opens.

        Args:
            state: of the run.
        """
        super().__init__()
        self._state = state
        self._had = False
        """Whether the wheel was requested or taken since it opened."""

    def compose(self) -> ComposeResult:
        """Structure only."""
        yield TooSmall()
        yield WheelHeader(self._state, id="wheel-header")
        yield ConversationView(id="wheel-conversation")
        yield Static(id="agent-says", markup=False)
        yield Static(id="wheel-choices", markup=False)
        yield SentenceInput(
            id="wheel-reasoning", placeholder="why, in a sentence; enter goes on", select_on_focus=False
        )
        yield Static(id="wheel-fault", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(ConversationView).focus()
        self.query_one(ConversationView).show(self._state.transcript.entries)
        self._draw()
        self.post_message(CommandAsked(TakeWheel()))

    def on_screen_resume(self, event: ScreenResume) -> None:
        """The wheel may have been let go behind another screen."""
        self.show(self._state)

    def show(self, state: RunState) -> None:
        """Show another state of the run; once the wheel is let go or refused: close."""
        before, self._state = self._state, state
        if state.wheel.awaited != before.wheel.awaited:
            self.query_one(SentenceInput).value = ""
        self._had = self._had or state.wheel.is_wanted
        if (self._had or not state.live) and not state.wheel.is_wanted:
            if self.is_current:
                self.dismiss()
            return
        self.query_one(ConversationView).show(state.transcript.entries)
        self._draw()

    def on_key(self, event: Key) -> None:
        """Actions are on the agent's keys, before any other meaning of them, unless a sentence is being written."""
        if self._writing or self._state.wheel.taken is None:
            return
        for index, choice in enumerate(self._state.wheel.taken.choices):
            if choice.key in (event.key, event.character):
                event.stop()
                event.prevent_default()
                self.action_choose(index)
                return

    @property
    def _writing(self) -> bool:
        return isinstance(self.focused, SentenceInput)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A sentence can be written while the turn waits, and a pause ended while there is one."""
        match action:
            case "reason":
                return True if self._state.wheel.is_persons_turn else None
            case "end_reason":
                return self._writing
            case "resume":
                return self._state.phase == "paused" and not self._writing
        return True

    def action_choose(self, index: int) -> None:
        """Take an action, by its key or a click."""
        wheel = self._state.wheel
        if not wheel.is_persons_turn or wheel.taken is None or wheel.awaited is None:
            return
        act = Act(
            episode=wheel.awaited.episode,
            turn=wheel.awaited.turn,
            action=wheel.taken.choices[index].action,
            reasoning=self.query_one(SentenceInput).value,
        )
        self.post_message(CommandAsked(act))

    def action_reason(self) -> None:
        """Write a sentence, or leave it as it stands."""
        if self._writing:
            self.action_end_reason()
        else:
            self.query_one(SentenceInput).display = True
            self.query_one(SentenceInput).focus()

    def action_end_reason(self) -> None:
        """The sentence stands."""
        self.query_one(ConversationView).focus()

    @on(DescendantFocus)
    def _focus_moved(self) -> None:
        self._draw()

    def action_resume(self) -> None:
        """End the pause."""
        self.post_message(CommandAsked(Resume()))

    def action_let_go(self) -> None:
        """Leave the sentence; or let the agent act again, and at the second time do not wait for the trainer."""
        if self._writing:
            self.action_end_reason()
        elif isinstance(self._state.wheel.requested, LetGo) or not self._state.wheel.is_wanted:
            self.dismiss()
        else:
            self.post_message(CommandAsked(LetGo()))

    def _draw(self) -> None:
        state = self._state
        self.query_one(WheelHeader).show(state)
        self.query_one("#agent-says", Static).update(agent_text(state))
        self.query_one("#wheel-choices", Static).update(
            choices_text(state, partial(moved_key, self.app), writing=self._writing)
        )
        sentence = self.query_one(SentenceInput)
        sentence.display = self._writing or bool(sentence.value)
        fault = self.query_one("#wheel-fault", Static)
        fault.display = bool(state.wheel.fault)
        fault.update(literal(state.wheel.fault))
        self.refresh_bindings()
