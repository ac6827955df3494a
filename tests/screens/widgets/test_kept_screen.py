"""Screens that are composed once: opened again, they are as new, of the run, theme and size of that moment."""

from __future__ import annotations

import pytest

from llamagym_tui.screens.widgets.fitted import KeptScreen
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import reaches, rolling_out, sees, shown, until


@pytest.mark.parametrize(
    ("key", "word", "hidden", "later"),
    [
        ("m", "entropy", "rollout s", "rollout s"),
    ],
)
async def test_a_screen_is_composed_once_and_opened_again_as_new(
    make_app: MakeApp, key: str, word: str, hidden: str, later: str
) -> None:
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with rolling_out(app, (120, 50)) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press(key)
        await sees(pilot, hidden)
        before = app.screen
        await pilot.press("slash", *word)
        await until(pilot, lambda: hidden not in shown(pilot), "a search")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.screen is not before, "back")
        await pilot.resize_terminal(80, 50)
        app.theme = "projector"
        await pilot.press(key)
        await reaches(pilot, KeptScreen)
        await sees(pilot, later)
        assert app.screen is before
        assert app.screen.has_class("-narrow")
        assert not app.screen.classes & {"-wide", "-finding"}
        assert app.screen.styles.background.hex == "#FFFFFF"
