"""The chart of mean return, from its first episode on."""

from __future__ import annotations

import pytest

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.screens.widgets.chart import Plot
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import is_drawn, sees, until


@pytest.mark.parametrize("episodes", [2, 8, 10])
async def test_a_run_of_few_episodes_has_no_line_yet(make_app: MakeApp, episodes: int):
    client = fakes.FakeClient(
        [*fakes.opening_events(), fakes.counted([1.0, -1.0] * (episodes // 2), episodes)]
    )
    app: LlamaGymApp = make_app(client)
    async with app.run_test(size=(120, 34)) as pilot:
        await until(pilot, lambda: app.run_state.episodes == episodes)
        await sees(pilot, "The curve begins with the first episodes.")
        await until(pilot, lambda: app.screen.query(Plot) and not app.screen.query_one(Plot).due)
        assert app.run_state is not None
        assert not is_drawn(app.screen, app.run_state)


async def test_another_size_is_drawn_anew(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run())
    app: LlamaGymApp = make_app(client)
    async with app.run_test(size=(120, 34)) as pilot:
        await until(pilot, lambda: app.screen.query("#returns"))
        chart = app.screen.query_one(Plot)
        await until(pilot, lambda: is_drawn(app.screen, app.run_state))
        rows = chart.size.height
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: chart.size.height > rows and is_drawn(app.screen, app.run_state))
