"""A seat in a class: a table at which each of the class's episodes is played once; then the class."""

from textual.content import Content

from llamagym_tui.demos.human_game import HumanGame, MatchAgainstModel
from llamagym_tui.screens.play.classroom import Classroom
from llamagym_tui.screens.play.table import HumanTableScreen, match_text
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.state.run import RunState


class SeatScreen(HumanTableScreen):
    ABOUT = "each episode counts as it is played; the model has played the same ones"
    BINDING_GROUP_TITLE = "Seat"

    def __init__(
        self,
        game: HumanGame,
        match: MatchAgainstModel,
        title: str,
        state: RunState,
        classroom: Classroom,
        seat: int,
    ) -> None:
        """A seat at which the episodes of `match` have been played; `state` has the model's part of it."""
        super().__init__(game, f"{title} · seat {seat}", state)
        self._match = match
        self._classroom = classroom
        self._seat = seat
        game.match = match
        game.returns.extend(match.returns)

    @property
    def begins_at_once(self) -> bool:
        return not self._match.is_over

    @property
    def next_words(self) -> str:
        return "the class and the model" if self._match.is_over else "next episode"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "leave":
            return False
        return super().check_action(action, parameters)

    def action_next(self) -> None:
        if not self._match.is_over:
            super().action_next()
            return
        with self._showing_faults():
            table = "\n".join(self._classroom.table(self._seat))
            own = match_text(self._match, self._state)
            dialog = ConfirmDialog("the class", own, Content(table), yes="look again", no="back")
            dialog.ask(self.app, self.action_next)
