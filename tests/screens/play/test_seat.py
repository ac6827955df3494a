"""A seat in a class: each episode once, from where its file ends; then the class; and nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from llamagym_tui import user_files
from llamagym_tui.app.app import SeatApp, open_seat
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.human_game import MATCH
from llamagym_tui.errors import UntrustedAgent, UsageError
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.screens.play.table import SeatScreen
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from tests import fakes
from tests.screens.play.test_classroom import SEED, classroom, play
from tests.screens.play.test_table import play_one
from tests.screens.steps import notices, reaches, sees, shown, until

SIZE = (80, 24)


@pytest.fixture(autouse=True)
def in_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(user_files.BROWSER, "seat blackjack")


async def test_a_seat_plays_the_models_episodes_and_nothing_takes_one_back(tmp_path: Path) -> None:
    room = classroom(tmp_path)
    app = SeatApp(room, 2)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "against the model: 0 of 20 episodes played")
        assert "seat 2" in shown(pilot)
        await play_one(pilot, app)
        await pilot.press("escape", "tab")
        await sees(pilot, "1 episode saved to")
        assert isinstance(app.screen, SeatScreen)
        await pilot.press("Y")
        assert notices(app) == [user_files.REFUSED]
        app.theme = "nord"
        await pilot.pause()
        assert user_files.REFUSED in notices(app)[-1]
        await pilot.press("enter", "tab")
        await play_one(pilot, app)
        await pilot.press("tab")
        await sees(pilot, "2 episodes saved to")
    demos = demo_files.read(room.seat_path(2))
    assert [demo.seed for demo in demos] == [episode_seed(SEED, number) for number in (0, 1)]
    assert [demo.system_prompt for demo in demos] == ["Be bold."] * 2
    assert not user_files.kept_theme()


async def test_whoever_comes_back_plays_the_rest_and_then_sees_the_class(tmp_path: Path) -> None:
    room = classroom(tmp_path)
    play(room, 1, [1.0] * MATCH)
    play(room, 2, [0.0] * (MATCH - 1))
    app = SeatApp(room, 2)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "19 of 20 episodes played")
        await play_one(pilot, app)
        await sees(pilot, "You earn")
        await sees(pilot, "the class and the model")
        await pilot.press("enter")
        await reaches(pilot, ConfirmDialog)
        await sees(pilot, "▸ seat 2")
        await pilot.press("n")
        await reaches(pilot, SeatScreen)
        last = episode_seed(SEED, MATCH - 1)
        # It is written in a thread; the program itself waits for it at its end.
        await until(pilot, lambda: demo_files.read(room.seat_path(2))[-1].seed == last)


def test_a_seat_that_the_class_has_not_and_code_that_nobody_typed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classroom(tmp_path / "one")
    with pytest.raises(UsageError, match="seats 1 to 3, and no seat 4"):
        open_seat(tmp_path / "one", 4)
    mine = tmp_path / "mine.py"
    mine.write_text("raise RuntimeError")
    config = structs.replace(fakes.config(tmp_path / "run"), agent=str(mine))
    classroom(tmp_path / "two", config=config)
    monkeypatch.delenv(user_files.BROWSER)
    with pytest.raises(UntrustedAgent):
        open_seat(tmp_path / "two", 1)
