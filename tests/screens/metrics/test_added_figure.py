"""Somebody adds a figure to the table and to the playground: every screen shows it, whatever their number is then."""

from __future__ import annotations

from llamagym_tui.protocol.events import SettingsChanged, UpdateFinished
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import sees, shown

LARGE = (160, 60)


async def test_another_learner_has_its_own_figures_at_once(make_app: MakeApp):
    update = UpdateFinished(update=1, episodes=16, stats=fakes.STATS)
    client = fakes.FakeClient([*fakes.opening_events(), update])
    async with make_app(client).run_test(size=LARGE) as pilot:
        await pilot.press("m")
        await sees(pilot, "expl. var")
        assert "flat groups" not in shown(pilot)
        client.emit(SettingsChanged(changes={"ppo.learner": "grpo"}))
        await sees(pilot, "flat groups")
        assert "expl. var" not in shown(pilot)
        assert "value loss" not in shown(pilot)
