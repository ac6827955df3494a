"""Actions of the playground's keys; what may be done now is `allowed`, which keys and palette share."""

from __future__ import annotations

from functools import partial
from typing import Literal

from textual.screen import Screen

from llamagym_tui import user_files
from llamagym_tui.protocol.commands import (
    DrawStates,
    RollBack,
    SaveCheckpoint,
    SetPace,
    Step,
    TakeWheel,
    Watch,
)
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fitted import WIDE
from llamagym_tui.state.run import RunState
from llamagym_tui.state.transcript import ReplySoFar


def allowed(action: str, state: RunState, parameters: tuple[object, ...] = ()) -> bool | None:
    """True if an action can be done now, None if its key is dim."""
    able = state.live and state.run is not None and not state.stopping
    match action:
        case "evaluate":
            able = able or bool(state.evaluations or state.comparison)
        case "checkpoint":
            able = able and state.pending.of(SaveCheckpoint) is None
        case "roll_back":
            able = able and state.pending.of(RollBack) is None
        case "advance":
            able = (
                able
                and state.pending.of(Step) is None
                and (parameters == ("turn",) or state.mode == "train")
            )
        case "pace":
            other = state.slower if parameters == ("slower",) else state.faster
            able = able and other != state.turn_s_intended
        case "view":
            able = state.view.drawn is not None or (state.run is not None and state.run.draws)
        case "inspect":
            able = state.inspection.found is not None or (able and state.watched is not None)
        case "settings" | "watch" | "take_wheel":
            pass
        case _:
            return True
    return True if able else None


class PlaygroundActions(Screen[None]):
    _state: RunState
    _drawing_wanted: bool | None = None
    """The choice of a person; None to draw where the screen is wide."""

    def action_metrics(self) -> None:
        from llamagym_tui.screens.metrics.metrics import MetricsScreen

        self.app.push_screen(MetricsScreen(self._state))

    def action_policy_map(self) -> None:
        """Open the policy map."""
        from llamagym_tui.screens.policy_map.screen import PolicyMapScreen

        self.app.push_screen(PolicyMapScreen(self._state))

    def action_settings(self) -> None:
        from llamagym_tui.screens.steering.settings import SettingsDialog

        self.app.push_screen(SettingsDialog(self._state))

    def action_evaluate(self) -> None:
        from llamagym_tui.screens.metrics.evaluation import EvaluationDialog

        self.app.push_screen(EvaluationDialog(self._state))

    def action_checkpoint(self) -> None:
        self.post_message(CommandAsked(SaveCheckpoint()))

    def action_roll_back(self) -> None:
        from llamagym_tui.screens.widgets.dialogs import ConfirmDialog

        question = (
            "Go back to the last good checkpoint? A checkpoint is good once a whole batch went well after it. "
            "What was learnt since is lost and the present batch is dropped; episodes stay counted."
        )
        asked = partial(self.post_message, CommandAsked(RollBack()))
        ConfirmDialog("roll back?", question, yes="roll back", no="stay").ask(self.app, asked)

    def action_advance(self, unit: Literal["turn", "update"]) -> None:
        self.post_message(CommandAsked(Step(unit=unit)))

    def action_pace(self, way: Literal["slower", "faster"]) -> None:
        def pace(state: RunState) -> SetPace:
            return SetPace(turn_s=state.slower if way == "slower" else state.faster)

        self.post_message(CommandAsked(pace))

    def action_watch(self, by: int) -> None:
        """Watch another environment."""

        def other(state: RunState) -> Watch:
            return Watch(env=(state.env_intended + by) % max(state.n_envs, 1))

        self.post_message(CommandAsked(other))

    def action_inspect(self) -> None:
        from llamagym_tui.screens.inspector.inspector import open_inspector

        open_inspector(self.query_one(ConversationView), self._state)

    def action_turn(self, by: int) -> None:
        """Mark the reply above or below the marked one."""
        self.query_one(ConversationView).mark_next(by)

    def action_unmark(self) -> None:
        """Unmark the reply and follow the newest line."""
        self.query_one(ConversationView).action_follow()

    @property
    def marked(self) -> ReplySoFar | None:
        """The reply that a person has marked."""
        return next((view.marked for view in self.query(ConversationView)), None)

    def action_take_wheel(self) -> None:
        """Take over from the agent, or go back to the open wheel."""
        from llamagym_tui.screens.play.wheel_screen import WheelScreen

        self.app.post_message(CommandAsked(TakeWheel()))
        self.app.push_screen(WheelScreen(self._state))

    def action_view(self) -> None:
        """Show or hide the drawing of the watched state, now and in later runs."""
        self._drawing_wanted = not self._draws
        try:
            user_files.keep_preferences(user_files.config_dir(), drawing=self._drawing_wanted)
        except OSError as error:
            self.notify(f"This is not kept for later runs: {error}", severity="warning")
        self.show_drawing()

    @property
    def _draws(self) -> bool:
        return self.size.width >= WIDE if self._drawing_wanted is None else self._drawing_wanted

    def show(self, state: RunState) -> None:
        raise NotImplementedError

    def show_drawing(self) -> None:
        """Show the drawing above the conversation, and request it from the trainer."""
        state, wanted = self._state, self._draws
        can_come = state.live and state.run is not None and state.run.draws
        is_there = can_come or state.view.drawn is not None
        self.query("StateDrawing").set_class(wanted and is_there, "-shown")
        asked = state.pending.of(DrawStates)
        if can_come and wanted != (asked is not None and asked.on):
            self.post_message(CommandAsked(DrawStates(on=wanted)))
