"""Home: an agent is chosen, its playground opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import OptionList

from llamagym_tui.agents.babyai import BabyAIAgent
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.screens.past_runs import home
from llamagym_tui.screens.past_runs.home import HomeScreen
from tests import fakes
from tests.screens.steps import notices, sees, until

AGENT = """
from llamagym_tui import Agent

class Mine(Agent):
    env_id = "CartPole-v1"
    def get_system_prompt(self): return "Balance."
    def format_observation(self, observation): return str(observation)
    def extract_action(self, response): return 0
"""


async def test_home_offers_the_agents_and_opens_a_playground():
    client = fakes.FakeClient()
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
        await sees(pilot, "LEARNING  Blackjack")
        assert client.started == app.config


async def test_the_easiest_games_come_first_and_without_runs_it_says_what_to_do():
    app = LlamaGymApp(client_factory=fakes.FakeClient)
    async with app.run_test(size=(120, 34)) as pilot:
        await sees(pilot, "Blackjack  learns in 1.5 min")
        await sees(pilot, "watch a model learn it, Blackjack in about a minute")
        names = [str(option.id) for option in app.screen.query_one(OptionList).options]
        assert names[:4] == ["blackjack", "frozen_lake", "kitchen", "tic_tac_toe"]


def test_a_game_that_lacks_a_package_says_which(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(home, "missing", lambda agent: "pip install 'llamagym-tui[minigrid]'")
    text = home.agent_text("babyai", BabyAIAgent).plain
    assert text == "BabyAI  needs extra minigrid\npip install 'llamagym-tui[minigrid]'"


async def test_help_at_home_lists_its_keys():
    app = LlamaGymApp(client_factory=fakes.FakeClient)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Blackjack")
        await pilot.press("question_mark")
        await sees(pilot, "Watch a model learn this game: a new run.")


async def test_q_in_a_run_that_was_begun_at_home_asks_and_goes_home():
    clients = []

    def client() -> fakes.FakeClient:
        clients.append(fakes.FakeClient(fakes.demo_run(batches=4)))
        return clients[-1]

    app = LlamaGymApp(client_factory=client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Blackjack")
        for runs in (1, 2):
            await pilot.press("enter")
            await sees(pilot, "episode 512")
            await sees(pilot, "q Leave")
            await pilot.press("m", "escape", "q")
            await sees(pilot, "Leaving writes a")
            await pilot.press("n", "q", "y")
            await until(pilot, lambda: isinstance(app.screen, HomeScreen), "home")
            assert len(clients) == runs
            assert clients[-1].stopped, "its trainer has saved and ended"
            assert app.run_state is None
            assert app.config is None
        await sees(pilot, "runs")
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_run_that_does_not_end_is_left_at_once_by_a_second_q():
    client = fakes.FakeClient()
    client.stop_takes_s = 0.2
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Blackjack")
        await pilot.press("enter")
        await sees(pilot, "episode ")
        client.stop_takes_s = 60.0
        await pilot.press("q", "q")
        await sees(pilot, "q again leaves at once.")
        client.stop_takes_s = 0.0
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, HomeScreen), "home")


async def test_a_file_is_played_by_typing_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    client = fakes.FakeClient()
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Blackjack")
        await pilot.press("slash", *"./mine.py", "enter")
        await until(pilot, lambda: client.started is not None)
        assert client.started.agent == str(tmp_path / "mine.py")


async def test_what_is_no_agent_is_refused_in_words_and_nothing_begins():
    client = fakes.FakeClient()
    app = LlamaGymApp(client_factory=lambda: client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "Blackjack")
        await pilot.press("slash", *"nothing", "enter")
        await until(pilot, lambda: any("nothing" in text for text in notices(app)))
        assert client.started is None
