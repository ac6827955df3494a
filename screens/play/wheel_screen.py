"""The wheel: a person acts in the watched environment in the agent's place."""

from collections.abc import Sequence

from textual.binding import Binding
from textual.content import Content

from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.commands import Act, LetGo, Resume
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.choosing import ChoosingScreen, choices_row
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.run_header import PHASES
from llamagym_tui.state.run import RunState
from llamagym_tui.state.wheel import WheelState

BADGE = "bold $background on $warning"
MOST_SHOWN = 240
"""Characters of the agent's reply that are shown."""


class WheelScreen(ChoosingScreen):
    """A person at the wheel, which was requested when the screen was opened."""

    BINDING_GROUP_TITLE = "Wheel"
    BINDINGS = [
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
        """True once the wheel was requested or taken."""

    def on_screen_resume(self) -> None:
        """The wheel may have been let go behind another screen."""
        self.show(self._state)

    def show(self, state: RunState) -> None:
        """Show another state of the run; close once the wheel is let go or refused."""
        self._state = state
        wheel = state.wheel
        self._had = self._had or wheel.is_wanted
        if (self._had or not state.live) and not wheel.is_wanted:
            if self.is_current:
                self.dismiss()
            return
        self.query_one(ConversationView).show(state.transcript.entries)
        actions = choices_row(self.choices, wheel.acted.action if wheel.acted else None)
        if not wheel.is_persons_turn:
            actions = actions.stylize(ASIDE)
        notes = [agent_text(state)]
        if wheel.fault:
            notes.append(Content.styled(one_line(wheel.fault), "$text-error"))
        self.draw_play(header(wheel), actions, self._what_now(), notes)

    @property
    def choices(self) -> Sequence[OfferedAction]:
        return choices_at(self._state.wheel)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._state.phase == "paused" if action == "resume" else True

    def action_choose(self, index: int) -> None:
        wheel, awaited = self._state.wheel, self._state.wheel.awaited
        if wheel.is_persons_turn and awaited is not None:
            action = self.choices[index].action
            act = Act(episode=awaited.episode, turn=awaited.turn, action=action)
            self.post_message(CommandAsked(act))

    def action_resume(self) -> None:
        self.post_message(CommandAsked(Resume()))

    def action_let_go(self) -> None:
        """Let the agent act again. A second press does not wait for the trainer."""
        # Posted by the app: a dismissed screen posts nothing. Not sent where nobody has or wants the wheel.
        self.app.post_message(CommandAsked(LetGo()))
        if isinstance(self._state.wheel.requested, LetGo) or not self._state.wheel.is_wanted:
            self.dismiss()

    def _what_now(self) -> str:
        state = self._state
        let_go = f"{key_of(self.app, 'wheel.let_go', 'escape')} lets go"
        if state.phase == "paused":
            return f"Paused: {key_of(self.app, 'wheel.resume', 'space')} resumes."
        if state.wheel.is_persons_turn:
            return f"{self.how_to_choose} · {let_go}"
        return "taken …" if state.wheel.acted is not None else let_go


def choices_at(wheel: WheelState) -> Sequence[OfferedAction]:
    """The actions that the person can take now, or could take in any turn."""
    if wheel.awaited is not None and wheel.awaited.choices:
        return wheel.awaited.choices
    return wheel.taken.choices if wheel.taken is not None else ()


def header(wheel: WheelState) -> Content:
    """Who acts, and where."""
    if wheel.taken is None:
        return Content.assemble(
            (" WHEEL REQUESTED ", BADGE), (" you act from the next turn on", ASIDE)
        )
    if isinstance(wheel.requested, LetGo):
        return Content.assemble((" LETTING GO ", BADGE), (" the agent acts again soon", ASIDE))
    if wheel.awaited is None:
        turn, where = " not your turn yet", f" · environment {wheel.taken.env + 1:,}"
    else:
        turn = " your turn"
        where = f" · episode {wheel.awaited.episode:,}, turn {wheel.awaited.turn + 1:,}"
    return Content.assemble((" YOU HAVE THE WHEEL ", BADGE), (turn, "bold"), (where, ASIDE))


def agent_text(state: RunState) -> Content:
    """The agent's own action in this turn, or the reason to wait."""
    awaited = state.wheel.awaited
    if awaited is None:
        doing = f"{PHASES[state.phase]} {one_line(state.detail)}".strip()
        if state.wheel.taken is None:
            return Content.styled(f"Waiting for the trainer: {doing} …", ASIDE)
        if state.phase == "rolling_out":
            return Content.styled("The other environments of the batch are playing …", ASIDE)
        return Content.styled(f"{doing} …", ASIDE)
    reply = one_line(awaited.reply[:MOST_SHOWN]) or "(nothing)"
    reply += " …" if len(awaited.reply) > MOST_SHOWN else ""
    drawn = one_line(awaited.action_name) or "no action: the environment would get the fallback"
    return Content.assemble(
        ("The agent drew ", ASIDE), (drawn, "bold"), (f"; its reply: {reply}", ASIDE)
    )
