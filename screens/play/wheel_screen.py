"""The wheel: a person acts in the watched environment in the agent's place; a key acts in an awaited turn."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.commands import Act, LetGo, Resume
from llamagym_tui.protocol.events import ActionAwaited, ActionsProbed
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.view import ConversationView, TurnInFull
from llamagym_tui.screens.play.choosing import ChoosingScreen, choices_row, reasoning_input
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fields import SentenceInput
from llamagym_tui.screens.widgets.fitted import TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import share
from llamagym_tui.screens.widgets.run_header import PHASES, StateText
from llamagym_tui.state.run import RunState
from llamagym_tui.state.wheel import WheelState

BADGE = "bold $background on $warning"
MOST_SHOWN = 240
"""Characters of the agent's reply; the conversation shows the rest."""
NEAR = 8
"""Entries at the end of the conversation among which the probabilities of a turn that waits are."""


def choices_at(wheel: WheelState) -> Sequence[OfferedAction]:
    """What the person can do now, or could do in any turn."""
    if wheel.awaited is not None and wheel.awaited.choices:
        return wheel.awaited.choices
    return wheel.taken.choices if wheel.taken is not None else ()


def agent_text(state: RunState) -> Content:
    """What the agent would do in this turn, or what the screen waits for."""
    awaited = state.wheel.awaited
    if awaited is None:
        return Content.styled(_waiting_for(state), ASIDE)
    reply = one_line(awaited.reply[:MOST_SHOWN]) or "(nothing)"
    reply += " …" if len(awaited.reply) > MOST_SHOWN else ""
    said = Content.styled(f"; its reply: {reply}", ASIDE)
    if not awaited.action_name:
        drawn = Content.styled("no action: the environment would get the fallback", "bold")
        return Content.assemble(("The agent drew ", ASIDE), drawn, said)
    chance = _chance(state, awaited)
    drawn = Content.styled(one_line(awaited.action_name), "bold")
    return Content.assemble(("The agent drew ", ASIDE), drawn, (chance, ASIDE), said)


def _chance(state: RunState, awaited: ActionAwaited) -> str:
    """How probable the policy found the action that it drew, where the conversation shows that."""
    for entry in reversed(state.transcript.entries[-NEAR:]):
        probed = entry.fact
        if isinstance(probed, ActionsProbed):
            is_here = (probed.episode, probed.turn) == (awaited.episode, awaited.turn)
            if is_here and awaited.action_name in probed.names:
                return f" ({share(probed.shares[probed.names.index(awaited.action_name)], 0)})"
    return ""


def _waiting_for(state: RunState) -> str:
    if state.wheel.taken is None:
        return f"Waiting for the trainer: {_doing(state)} …"
    if state.phase == "rolling_out":
        return "The other environments of the batch are playing …"
    return f"{_doing(state)} …"


def _doing(state: RunState) -> str:
    return f"{PHASES[state.phase]} {one_line(state.detail)}".strip()


class WheelHeader(StateText):
    def content_at(self, width: int) -> Content:
        """Who acts, and where; that the others wait only if the row has room."""
        wheel = self.state.wheel
        if wheel.taken is None:
            return Content.assemble(
                (" WHEEL REQUESTED ", BADGE), (" you act from the next turn on", ASIDE)
            )
        if isinstance(wheel.requested, LetGo):
            return Content.assemble((" LETTING GO ", BADGE), (" the agent acts again soon", ASIDE))
        where = f" · environment {wheel.taken.env + 1:,}"
        if wheel.awaited is None:
            return Content.assemble(
                (" YOU HAVE THE WHEEL ", BADGE), " not your turn yet", (where, ASIDE)
            )
        at = f" · episode {wheel.awaited.episode:,}, turn {wheel.awaited.turn + 1:,}"
        long, short = (
            Content.assemble((" YOU HAVE THE WHEEL ", BADGE), (turn, "bold"), (at, ASIDE))
            for turn in (" your turn, all others wait", " your turn")
        )
        return long if long.cell_length <= width else short


class WheelScreen(ChoosingScreen[None]):
    """A person at the wheel, which was requested when the screen was opened."""

    CSS_PATH = "wheel_screen.tcss"
    BINDING_GROUP_TITLE = "Wheel"
    BINDINGS = [
        Binding(
            "tab",
            "reason",
            "Say why",
            tooltip="Write a sentence that your reply begins with.",
            id="wheel.reason",
        ),
        Binding(
            "enter",
            "end_reason",
            "Done",
            tooltip="Leave the sentence.",
            id="wheel.done",
            priority=True,
        ),
        Binding("space", "resume", "Resume", tooltip="End the pause.", id="wheel.resume"),
        Binding(
            "question_mark", "app.help", "Help", tooltip="What the keys do.", id="help", show=False
        ),
        Binding(
            "escape,w", "let_go", "Let go", tooltip="Let the agent act again.", id="wheel.let_go"
        ),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._had = False
        """Whether the wheel was requested or taken since it opened."""

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield WheelHeader(self._state, id="wheel-header")
        conversation = ConversationView(id="wheel-conversation")
        conversation.shows_newest = True
        yield conversation
        yield TurnInFull(conversation)
        yield Static(id="agent-says", markup=False)
        yield Static(id="wheel-choices", markup=False)
        yield reasoning_input("wheel-reasoning")
        yield Static(id="wheel-fault", markup=False)
        yield KeyBar()

    def on_screen_resume(self) -> None:
        """At first; and the wheel may have been let go behind another screen."""
        self.show(self._state)

    def show(self, state: RunState) -> None:
        """Show another state of the run; close once the wheel is let go or refused."""
        before = self._state
        self._state = state
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
    def choices(self) -> Sequence[OfferedAction]:
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
        action, why = self.choices[index].action, self.query_one(SentenceInput).value
        self.post_message(
            CommandAsked(
                Act(episode=awaited.episode, turn=awaited.turn, action=action, reasoning=why)
            )
        )

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

    def _what_now(self) -> str:
        """What a key does."""
        state, how = self._state, self.how_to_choose("wheel")
        let_go = f"{key_of(self.app, 'wheel.let_go', 'escape')} lets go"
        if self.writing:
            return how
        if state.phase == "paused":
            return f"Paused: {key_of(self.app, 'wheel.resume', 'space')} resumes."
        if state.wheel.is_persons_turn:
            return f"{how} · {let_go}"
        return "taken …" if state.wheel.acted is not None else let_go

    def draw(self) -> None:
        state = self._state
        self.query_one(WheelHeader).show(state)
        self.update_text("agent-says", agent_text(state))
        row = choices_row(self.choices, state.wheel.acted.action if state.wheel.acted else None)
        row = row if state.wheel.is_persons_turn else row.stylize("$aside")
        self.update_text(
            "wheel-choices", Content("\n").join([row, Content.styled(self._what_now(), ASIDE)])
        )
        self.show_sentence()
        fault = self.query_one("#wheel-fault", Static)
        fault.display = bool(state.wheel.fault)
        fault.update(one_line(state.wheel.fault))
        self.refresh_bindings()
