"""A person's table in the app: opens at once, plays, saves, and shows the file."""

from __future__ import annotations

from pathlib import Path

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.demos import files as demo_files
from llamagym_tui.screens.play.table import HumanTableScreen
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.dialogs import QuitDialog
from llamagym_tui.settings import RunConfig
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import reaches, sees, shown, stands_still, until

SIZE = (80, 24)


async def play_one(pilot, app: LlamaGymApp) -> None:
    """Stick, whatever the cards are."""
    await sees(pilot, "Your total:")
    await pilot.press("s")
    await sees(pilot, "The episode is over")


async def test_the_table_opens_while_the_model_loads_and_saves_what_is_played(make_app: MakeApp):
    client = fakes.FakeClient(list(fakes.opening_events())[:2])
    app = make_app(client)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "loading the model")
        await pilot.press("h")
        await reaches(pilot, HumanTableScreen)
        await play_one(pilot, app)
        screen = shown(pilot)
        assert "system  You are playing Blackjack." in screen
        assert 'you     {"action": 0}' in screen
        assert "action  stick · chosen by you" in screen
        path = demo_files.default_path("blackjack")
        await until(pilot, path.exists)
        await sees(pilot, "1 episode saved to")
        await pilot.press("enter")
        await sees(pilot, "episode 1")
        await sees(pilot, " s  stick    h  hit")
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)
        await pilot.press("h")
        await sees(pilot, "1 episode, sum")
        await sees(pilot, "system  You are playing Blackjack.")
        await stands_still(pilot)
        await pilot.click("#play-choices", offset=(5, 1))
        await sees(pilot, "The episode is over")
        await sees(pilot, "2 episodes saved to")
        await pilot.press("escape")
    demo, _ = demo_files.read(path)
    assert (demo.agent, demo.source, demo.seed, demo.recorded_at) == (
        "blackjack",
        "human",
        1,
        "2026-01-02T12:00:00Z",
    )


async def test_a_full_disk_loses_no_episode(make_app: MakeApp):
    app = make_app(fakes.FakeClient(list(fakes.opening_events())[:2]))
    folder = demo_files.default_path("blackjack").parent
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await play_one(pilot, app)
        await sees(pilot, "1 not saved; the next episode tries again")
        await pilot.press("escape", "q")
        await reaches(pilot, QuitDialog)
        assert "would be lost" in " ".join(shown(pilot).split())
        await pilot.press("n", "h")
        folder.unlink()
        await pilot.press("enter")
        await play_one(pilot, app)
        await sees(pilot, "2 episodes saved to")
    assert len(demo_files.read(demo_files.default_path("blackjack"))) == 2


async def test_an_environment_that_keys_cannot_play_is_explained_in_a_sentence(
    make_app: MakeApp, tmp_path: Path
):
    file = tmp_path / "pendulum.py"
    file.write_text(
        "from llamagym_tui import Agent\n"
        "class PendulumAgent(Agent):\n"
        "    env_id = 'Pendulum-v1'\n"
        "    def get_system_prompt(self): return 'Swing.'\n"
        "    def format_observation(self, observation): return str(observation)\n"
        "    def extract_action(self, response): return None\n"
    )
    app = LlamaGymApp(
        RunConfig(agent=str(file), run_dir=str(tmp_path / "run")),
        client_factory=lambda: fakes.FakeClient(),
    )
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "cannot be played")
        why = "only discrete actions can be taken with keys"
        await until(pilot, lambda: why in " ".join(shown(pilot).split()), why)
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)


async def test_arrow_keys_walk_on_a_grid(tmp_path: Path):
    app = LlamaGymApp(
        RunConfig(agent="frozen_lake", run_dir=str(tmp_path / "run")),
        client_factory=lambda: fakes.FakeClient(),
    )
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "a key takes its action at once, arrow keys too")
        await pilot.press("down")
        await sees(pilot, "  down ")
        await pilot.press("up")
        await sees(pilot, "  up ")
