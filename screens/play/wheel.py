"""The wheel: a person acts in the watched environment in the agent's place, while the run waits at their turns.

Shows the run's own conversation, the reply that the agent would give, and the actions on keys. The trainer steps the
environment; a key acts only in a turn for which the trainer awaits an action. Closes when the wheel is let go.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.events import ScreenResume
from textual.widgets import Static

from llamagym_tui.game.choices import Choice
from llamagym_tui.protocol.commands import Act, LetGo, Resume
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.choosing import ChoosingScreen, reasoning_input
from llamagym_tui.screens.play.wheel_texts import agent_text, choices_at, choices_text, header_text
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of, own_keys
from llamagym_tui.screens.widgets.sentence_input import SentenceInput
from llamagym_tui.screens.widgets.sizes import TooSmall
from llamagym_tui.screens.widgets.state_text import StateText
from llamagym_tui.state.run import RunState


class WheelHeader(StateText):
    def content_at(self, width: int) -> Content:
        return header_text(self.state, width)


class WheelScreen(ChoosingScreen[None]):
    """A person at the wheel, which was requested when the screen was opened."""

    CSS_PATH = "wheel.tcss"
    BINDING_GROUP_TITLE = "Wheel"
    BINDINGS: ClassVar[list[BindingType]] = own_keys(__file__)

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._had = False
        """Whether the wheel was requested or taken since it opened."""

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield WheelHeader(self._state, id="wheel-header")
        yield ConversationView(id="wheel-conversation")
        yield Static(id="agent-says", markup=False)
        yield Static(id="wheel-choices", markup=False)
        yield reasoning_input("wheel-reasoning")
        yield Static(id="wheel-fault", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(ConversationView).focus()
        self.query_one(ConversationView).show(self._state.transcript.entries)
        self.draw()

    def on_screen_resume(self, event: ScreenResume) -> None:
        """The wheel may have been let go behind another screen."""
        self.show(self._state)

    def show(self, state: RunState) -> None:
        """Show another state of the run; close once the wheel is let go or refused."""
        before, self._state = self._state, state
        if state.wheel.awaited != before.wheel.awaited:
            self.query_one(SentenceInput).value = ""
        self._had = self._had or state.wheel.is_wanted
        if (self._had or not state.live) and not state.wheel.is_wanted:
            if self.is_current:
                self.dismiss()
            return
        self.query_one(ConversationView).show(state.transcript.entries)
        self.draw()

    @property
    def choices(self) -> Sequence[Choice]:
        return choices_at(self._state.wheel)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "reason":
                return True if self._state.wheel.is_persons_turn else None
            case "end_reason":
                return self.writing
            case "resume":
                return self._state.phase == "paused" and not self.writing
        return True

    def action_choose(self, index: int) -> None:
        wheel, awaited = self._state.wheel, self._state.wheel.awaited
        if not wheel.is_persons_turn or awaited is None:
            return
        action, why = choices_at(wheel)[index].action, self.query_one(SentenceInput).value
        self.post_message(CommandAsked(Act(episode=awaited.episode, turn=awaited.turn, action=action, reasoning=why)))

    def action_resume(self) -> None:
        self.post_message(CommandAsked(Resume()))

    def action_let_go(self) -> None:
        """Leave the sentence; or let the agent act again. A second press does not wait for the trainer."""
        if self.writing:
            self.action_reason()
            return
        # Posted by the app: a dismissed screen posts nothing. Not sent where nobody has or wants the wheel.
        self.app.post_message(CommandAsked(LetGo()))
        if isinstance(self._state.wheel.requested, LetGo) or not self._state.wheel.is_wanted:
            self.dismiss()

    def draw(self) -> None:
        state = self._state
        self.query_one(WheelHeader).show(state)
        self.update_text("agent-says", agent_text(state))
        self.update_text("wheel-choices", choices_text(state, partial(key_of, self.app), writing=self.writing))
        self.show_sentence()
        fault = self.query_one("#wheel-fault", Static)
        fault.display = bool(state.wheel.fault)
        fault.update(one_line(state.wheel.fault))
        self.refresh_bindings()
