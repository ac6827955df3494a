"""Somebody adds a figure to the table and to the playground: every screen shows it, whatever their number is then."""

from __future__ import annotations

import pytest
from msgspec.structs import asdict

from llamagym_tui.config import FIGURES, UpdateStats
from llamagym_tui.config.figures import FigureText
from llamagym_tui.protocol.events import SettingsChanged, UpdateFinished
from llamagym_tui.screens.metrics.metrics import FigureList
from llamagym_tui.screens.playground import figures
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import sees, shown

LARGE = (160, 60)


class MeasuredStats(UpdateStats, frozen=True, kw_only=True):
    surprise: float = 0.25


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    text = FigureText(
        title="surprise of the critic",
        group="critic",
        short="surprise",
        meaning="How far the critic was off.",
        healthy="falls",
        charted=True,
    )
    monkeypatch.setitem(FIGURES, "surprise", text)
    monkeypatch.setattr(figures, "PPO", (*figures.PPO, "surprise"))


@pytest.mark.usefixtures("added")
async def test_an_added_figure_is_beside_the_game_in_the_help_and_on_the_charts(make_app: MakeApp):
    assert len(figures.PPO) % 2 == 1, "the last row has one figure"
    stats = MeasuredStats(**asdict(fakes.STATS))
    updates = [UpdateFinished(update=number, episodes=16, stats=stats) for number in (1, 2, 3)]
    app = make_app(fakes.FakeClient([*fakes.opening_events(), *updates]))
    async with app.run_test(size=LARGE) as pilot:
        await sees(pilot, "surprise    0.250")
        await pilot.press("m")
        await sees(pilot, "surprise  0.250  ·")
        listed = pilot.app.screen.query_one(FigureList)
        listed.highlighted = listed.get_option_index("surprise")
        await sees(pilot, "surprise of the critic")


async def test_another_learner_has_its_own_figures_at_once(make_app: MakeApp):
    update = UpdateFinished(update=1, episodes=16, stats=fakes.STATS)
    client = fakes.FakeClient([*fakes.opening_events(), update])
    async with make_app(client).run_test(size=LARGE) as pilot:
        await pilot.press("m")
        await sees(pilot, "expl. var")
        assert "idle turns" not in shown(pilot)
        client.emit(SettingsChanged(changes={"ppo.learner": "grpo"}))
        await sees(pilot, "idle turns")
        assert "expl. var" not in shown(pilot)
        assert "value loss" not in shown(pilot)
