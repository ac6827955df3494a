"""A seat in a class: a table at which each of the class's episodes is played once; then the class."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from llamagym_tui.demos.human_game import HumanGame, MatchAgainstModel
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.play.classroom import Classroom
from llamagym_tui.screens.play.table import HumanTableScreen, PolicyHint, match_text
from llamagym_tui.screens.widgets.fitted import TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.run import RunState

LOOK_S = 3.0
"""Seconds between two readings of the class."""
NOT_AT_A_SEAT = ("hint", "leave")
"""Actions that a seat lacks: an episode counts as it was played."""


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
        super().__init__(game, f"{title} · seat {seat}", PolicyHint(), state)
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
        if action in NOT_AT_A_SEAT:
            return False
        return super().check_action(action, parameters)

    def action_next(self) -> None:
        if not self._match.is_over:
            super().action_next()
            return
        own = match_text(self._match, self._state)
        self.app.push_screen(ClassScreen(self._classroom, self._seat, own))


class ClassScreen(Screen[None]):
    """The table of the class."""

    CSS_PATH = "seat.tcss"
    BINDING_GROUP_TITLE = "Class"
    BINDINGS = [
        Binding(
            "question_mark", "app.help", "Help", tooltip="What the keys do.", id="help", show=False
        ),
        Binding("escape", "dismiss", "Back", tooltip="Back to your last episode.", id="class.back"),
    ]

    def __init__(self, classroom: Classroom, seat: int, own: str) -> None:
        super().__init__()
        self._classroom = classroom
        self._seat = seat
        self._own = own

    def compose(self) -> ComposeResult:
        yield TooSmall()
        header = Content.assemble(
            (" THE CLASS ", "bold $background on $accent"),
            (f" seat {self._seat}", "bold"),
            (" · all have played the same episodes; others may still be playing", ASIDE),
        )
        yield Static(header, id="class-header", markup=False)
        yield Static(Content(one_line(self._own)), id="class-own", markup=False)
        with VerticalScroll(id="class"):
            yield Static(id="class-lines", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.look()
        self.set_interval(LOOK_S, self.look)
        self.query_one(VerticalScroll).focus()

    def look(self) -> None:
        """Show the class as it stands."""
        try:
            text = "\n".join(self._classroom.table(self._seat))
        except LlamaGymError as error:
            text = one_line(str(error))
        self.query_one("#class-lines", Static).update(text)
