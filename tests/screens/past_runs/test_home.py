"""Home: an agent is chosen, its playground opens."""

from __future__ import annotations

from textual.widgets import OptionList

from llamagym_tui.app.app import LlamaGymApp
from tests import fakes
from tests.screens.steps import sees, until


async def test_home_offers_the_agents_and_opens_a_playground():
    client = fakes.FakeClient(fakes.opening_events())
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Blackjack")
        options = app.screen.query_one(OptionList)
        options.highlighted = options.get_option_index("blackjack")
        await pilot.press("enter")
        await until(pilot, lambda: app.config is not None)
        assert app.config is not None
        assert app.config.agent == "blackjack"
        assert app.config.run_dir.endswith("-blackjack")
        await sees(pilot, "TRAIN  Blackjack")
        assert client.started == app.config


async def test_q_leaves_home():
    app = LlamaGymApp(client_factory=fakes.FakeClient)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Blackjack")
        await pilot.press("q")
    assert app.return_code == 0
