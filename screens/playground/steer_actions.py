"""Actions that steer a run: metrics, policy map, settings, evaluation, checkpoint, roll back.

A mixin of the playground: it opens dialogs and posts what they request. What may be done now is one function of the
run state, `steering_allowed`, which keys and command palette share.
"""

from functools import partial

from textual.screen import Screen

from llamagym_tui.protocol.commands import RollBack, SaveCheckpoint
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.state.run import RunState


def steering_allowed(action: str, state: RunState) -> bool | None:
    """Whether an action of these keys can be done now; None: its key is shown dim."""
    able = state.live and state.run is not None and not state.stopping
    allowed = {
        "evaluate": able or bool(state.evaluations or state.comparison),
        "checkpoint": able and not state.pending.checkpoint,
        "roll_back": able and not state.pending.roll_back,
        "settings": able,
    }
    return True if allowed.get(action, True) else None


class Steering(Screen[None]):
    _state: RunState
    _typed_settings: dict[str, str]
    """What is typed in the settings and not requested."""

    def action_metrics(self) -> None:
        from llamagym_tui.screens.metrics.metrics import MetricsScreen

        self.app.push_screen(MetricsScreen(self._state))

    def action_policy_map(self) -> None:
        """Open the policy on its map; meanwhile the trainer computes it often."""
        from llamagym_tui.screens.policy_map.policy_map import PolicyMapScreen

        self.app.push_screen(PolicyMapScreen(self._state))

    def action_changes(self) -> None:
        from llamagym_tui.screens.policy_map.changes import ChangesScreen

        self.app.push_screen(ChangesScreen(self._state))

    def action_settings(self) -> None:
        from llamagym_tui.screens.steering.settings import SettingsDialog

        self.app.push_screen(SettingsDialog(self._state, self._typed_settings))

    def action_evaluate(self) -> None:
        from llamagym_tui.screens.metrics.evaluation import EvaluationDialog

        self.app.push_screen(EvaluationDialog(self._state))

    def action_checkpoint(self) -> None:
        self.post_message(CommandAsked(SaveCheckpoint()))

    def action_roll_back(self) -> None:
        from llamagym_tui.screens.widgets.dialogs import ConfirmDialog

        question = (
            "Go back to the last good checkpoint? Good is one after which a whole batch was played and went well, so "
            "not one of a moment ago. What was learnt since is lost; episodes stay counted, and the batch under way "
            "is dropped."
        )
        asked = partial(self.post_message, CommandAsked(RollBack()))
        ConfirmDialog("roll back?", question, yes="roll back", no="stay").ask(self.app, asked)
