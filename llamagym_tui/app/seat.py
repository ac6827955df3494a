"""The app of a visitor in a class: a seat at the table, without a trainer."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace
from textual.screen import Screen

from llamagym_tui.app.app import LlamaGymApp, run_app
from llamagym_tui.errors import UsageError
from llamagym_tui.screens.play.classroom import Classroom
from llamagym_tui.screens.play.seat import SeatScreen
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.setup.trust import require_trusted
from llamagym_tui.state.run import initial_state


class SeatApp(LlamaGymApp):
    def __init__(self, classroom: Classroom, seat: int) -> None:
        """The app of a seat, counted from 1."""
        super().__init__()
        self._classroom = classroom
        self._seat = seat
        config = classroom.record.config
        self._agent = RunAgent(config.agent, config=config, demos=classroom.seat_path(seat))

    def get_default_screen(self) -> Screen[Any]:
        return Screen()

    def on_mount(self) -> None:
        record = self._classroom.record
        state = replace(initial_state(record.config), match=record.match)
        game = self.recorder.table(lambda: record.config.system_prompt or "")
        match = self._classroom.match_of(self._seat)
        screen = SeatScreen(game, match, self._agent.title, state, self._classroom, self._seat)
        self.push_screen(screen)


def open_seat(folder: Path, seat: int) -> int:
    """Play at a seat of a class. Returns the exit code.

    Raises:
        UsageError: the folder holds no class, or it has no such seat.
        LlamaGymError: the seat's file cannot be read, or the agent's code is not trusted.
    """
    classroom = Classroom.read(folder)
    if not 1 <= seat <= classroom.record.seats:
        raise UsageError(f"The class has seats 1 to {classroom.record.seats}, and no seat {seat}.")
    require_trusted(classroom.record.config.agent)
    classroom.match_of(seat)
    return run_app(SeatApp(classroom, seat))
