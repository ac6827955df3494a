"""Home: an agent is chosen, its playground opens."""

from __future__ import annotations

from textual.widgets import OptionList

from llamagym_tui.app.app import LlamaGymApp
from tests import fakes
from tests.screens.steps import sees, shown, until


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


async def test_help_of_home_is_about_its_lists_and_not_about_ppo():
    app = LlamaGymApp(client_factory=fakes.FakeClient)
    async with app.run_test(size=(120, 60)) as pilot:
        await sees(pilot, "Blackjack")
        await pilot.press("escape", "question_mark")
        await sees(pilot, "To move a key")
        told = shown(pilot)
        assert all(text in told for text in ("Open the playground", "Watch the recorded run.", "Go on from the run's"))
        assert "KL" not in told
        assert "nats" not in told
