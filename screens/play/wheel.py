"""The wheel: a person acts in the watched environment in the agent's place."""

from collections.abc import Sequence

from textual.binding import Binding
from textual.content import Content

from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.game.drawing import StateDrawing
from llamagym_tui.protocol.commands import Act, LetGo, Resume
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.turns import return_text
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.choosing import Board, ChoosingScreen, choices_row, would_do
from llamagym_tui.screens.widgets.frame import HELP_KEY, CommandAsked
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE, heading
from llamagym_tui.screens.widgets.run_header import PHASES
from llamagym_tui.state.run import RunState
from llamagym_tui.state.transcript import Notice


class WheelScreen(ChoosingScreen):
    """A person at the wheel, which was requested when the screen was opened."""

    BINDING_GROUP_TITLE = "Wheel"
    BINDINGS = [
        Binding("space", "resume", "Resume", tooltip="End the pause.", id="wheel.resume"),
        HELP_KEY,
        Binding(
            "escape,w",
            "let_go",
            "Leave",
            tooltip="Leave the wheel: the model acts again.",
            id="wheel.let_go",
        ),
    ]
    _had = False
    """True once the wheel was requested or taken."""

    def on_screen_resume(self) -> None:
        """The wheel may have been let go behind another screen."""
        self.show(self._state)

    def show(self, state: RunState) -> None:
        """Show another state of the run; close once the wheel is let go or refused."""
        self._state = state
        self._had = self._had or state.wheel_wanted
        if (self._had or not state.live) and not state.wheel_wanted:
            if self.is_current:
                self.dismiss()
            return
        self.query_one(ConversationView).show(state.transcript.entries)
        acted = state.pending.of(Act)
        actions = choices_row(
            self.choices, self.app.size.width - 2, acted.action if acted else None
        )
        if not state.is_persons_turn:
            actions = actions.stylize(ASIDE)
        drawn = state.view.drawn
        drawing = StateDrawing("")
        if drawn is not None:
            drawing = StateDrawing(drawn.text, tuple(drawn.grounds))
        board = self.query_one(Board)
        board.show(drawing, state.view.seen, self.choices if state.is_persons_turn else ())
        notes = [agent_text(state)]
        if (notice := newest_notice(state)) is not None:
            notes.append(Content.styled(one_line(notice.text), "italic $text-accent"))
        if board.has_all_keys:
            actions = Content("Click a field, or type its number.")
        self.draw_play(
            header(state),
            came_of_it(state, self.app.size.width - 2),
            actions,
            self._what_now(),
            notes,
        )

    @property
    def choices(self) -> Sequence[OfferedAction]:
        """The actions that the person can take now, or could take in any turn."""
        state = self._state
        if state.awaited is not None and state.awaited.choices:
            return state.awaited.choices
        return state.wheel.choices if state.wheel is not None else ()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._state.phase == "paused" if action == "resume" else True

    def action_choose(self, index: int) -> None:
        awaited = self._state.awaited
        if awaited is not None:
            action = self.choices[index].action
            act = Act(episode=awaited.episode, turn=awaited.turn, action=action)
            self.post_message(CommandAsked(act))

    def action_resume(self) -> None:
        self.post_message(CommandAsked(Resume()))

    def action_let_go(self) -> None:
        """Leave the wheel: the model acts again. A second press does not wait for the trainer."""
        # Posted by the app: a dismissed screen posts nothing. Not sent where nobody has or wants the wheel.
        self.app.post_message(CommandAsked(LetGo()))
        if self._state.pending.of(LetGo) is not None or not self._state.wheel_wanted:
            self.dismiss()

    def _what_now(self) -> str:
        state = self._state
        let_go = f"{key_of(self.app, 'wheel.let_go', 'escape')} leaves the wheel"
        if state.phase == "paused":
            return f"Paused: {key_of(self.app, 'wheel.resume', 'space')} resumes."
        if state.is_persons_turn:
            return f"{self.how_to_choose} · {let_go}"
        return "taken …" if state.pending.of(Act) is not None else let_go


def header(state: RunState) -> Content:
    """Who acts, and where."""
    if state.wheel is None:
        badge, now, where = "WHEEL REQUESTED", "", " you act from the next turn on"
    elif state.pending.of(LetGo) is not None:
        badge, now, where = "LEAVING THE WHEEL", "", " the model acts again soon"
    elif state.awaited is None:
        badge, now = "YOU HAVE THE WHEEL", "not your turn yet"
        where = f" · environment {state.wheel.env + 1:,}"
    else:
        badge, now = "YOU HAVE THE WHEEL", "your turn"
        where = f" · episode {state.awaited.episode:,}, turn {state.awaited.turn + 1:,}"
    return heading(badge, now, where, color="$warning")


def agent_text(state: RunState) -> Content:
    """The agent's own action in this turn, or the reason to wait."""
    awaited = state.awaited
    if awaited is None:
        doing = f"{PHASES[state.phase]} {one_line(state.detail)}".strip()
        if state.phase == "rolling_out" and state.wheel is not None:
            doing = "The other environments of the batch are playing"
        return Content.styled(f"{doing} …", ASIDE)
    drawn = one_line(awaited.action_name) or "no action: the environment would get the fallback"
    return Content.assemble(
        ("The model chose ", ASIDE), (drawn, "bold"), (" in your place.", ASIDE)
    )


def newest_notice(state: RunState) -> Notice | None:
    """The last thing that happened, if it is a notice."""
    entries = state.transcript.entries
    fact = entries[-1].fact if entries else None
    return fact if isinstance(fact, Notice) else None


def came_of_it(state: RunState, width: int) -> Content:
    """The person's last action, what its episode earned if that was the end, and what the model would do now."""
    acted, finished, probed = state.view.acted, state.view.finished, state.view.probed
    lines = []
    if acted is not None and acted.how == "human":
        line = Content.assemble(("you ", ASIDE), (one_line(acted.action_name), "bold"))
        if finished is not None and finished.episode == acted.episode:
            line += Content.assemble("   return ", return_text(finished.episode_return))
        lines.append(line)
    awaited = state.awaited
    now = (awaited.episode, awaited.turn) if awaited is not None else None
    if probed is not None and (probed.episode, probed.turn) == now:
        lines.append(would_do(probed.names, probed.shares, width))
    return Content("\n").join(lines)
