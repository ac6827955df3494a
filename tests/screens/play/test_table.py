"""A person's table in the app: opens at once, plays, saves, and shows the file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from llamagym_tui.app.app import LlamaGymApp, TableApp
from llamagym_tui.demos import files as demo_files
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.protocol.commands import AnyCommand, ProbeActions
from llamagym_tui.protocol.events import AnyEvent, ConversationProbed
from llamagym_tui.screens.play.choosing import Board
from llamagym_tui.screens.play.table import HumanTableScreen, outcome
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.dialogs import QuitDialog
from llamagym_tui.settings import RunConfig
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.play.test_match import MovesFirst
from tests.screens.steps import reaches, rolling_out, sees, shown, stands_still, until

SIZE = (80, 24)


async def play_one(pilot, app: LlamaGymApp) -> None:
    """Stick, whatever the cards are."""
    await sees(pilot, "s  stick")
    await pilot.press("s")
    await sees(pilot, "you stick")


async def test_the_table_opens_while_the_model_loads_and_saves_what_is_played(make_app: MakeApp):
    client = fakes.FakeClient(list(fakes.opening_events())[:2])
    app = make_app(client)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "▸ model")
        await pilot.press("h")
        await reaches(pilot, HumanTableScreen)
        await play_one(pilot, app)
        told = ("{", "You are playing", "demos/blackjack.jsonl")
        assert not any(words in shown(pilot) for words in told), "a person needs none of it"
        await pilot.press("tab")
        await sees(pilot, 'you     {"action": 0}')
        screen = shown(pilot)
        assert "system  You are playing Blackjack." in screen
        assert "action  stick · chosen by you" in screen
        path = demo_files.default_path("blackjack")
        await until(pilot, path.exists)
        await sees(pilot, "1 episode saved to")
        await pilot.press("enter", "tab")
        await sees(pilot, " s  stick    h  hit")
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)
        await pilot.press("h")
        await sees(pilot, "dealer ")
        await stands_still(pilot)
        line = next(line for line in shown(pilot).split("\n") if "s  stick" in line)
        await pilot.click("#play-choices", offset=(line.index("stick"), 0))
        await sees(pilot, "you stick")
        await pilot.press("tab")
        await sees(pilot, "2 episodes saved to")
        await pilot.press("escape")
    demo, _ = demo_files.read(path)
    assert (demo.agent, demo.source, demo.seed, demo.recorded_at) == (
        "blackjack",
        "human",
        1,
        "2026-01-02T12:00:00Z",
    )


class Sticks(fakes.FakeClient):
    """The model would stick in nine of ten hands."""

    def _answer(self, command: AnyCommand) -> AnyEvent | None:
        if not isinstance(command, ProbeActions):
            return super()._answer(command)
        shares = [0.9, 0.1]
        return ConversationProbed(ticket=command.ticket, names=["stick", "hit"], shares=shares)


async def test_after_a_move_the_table_says_what_it_came_to_and_what_the_model_would_do(
    make_app: MakeApp,
):
    app = make_app(Sticks())
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "s  stick")
        assert "you  0 won, 0 lost, 0 drawn" in shown(pilot)
        assert "the model   " not in shown(pilot), "it would tell how to move"
        await pilot.press("s")
        # The cards of seed 1: 20 against the dealer's 26.
        await sees(pilot, "you stick   won +1")
        await sees(pilot, "the model   stick 90% █████████  hit 10% █")
        await sees(pilot, "you  1 won, 0 lost, 0 drawn, +1 in all")
        await sees(pilot, "dealer 26, bust")


def test_an_episode_is_won_lost_or_a_draw_only_where_its_return_says_so() -> None:
    def ended(reward: float, *, is_won_or_lost: bool) -> str:
        game = SimpleNamespace(score=reward, is_won_or_lost=is_won_or_lost)
        return outcome(game)[0]  # type: ignore[arg-type]

    found = [ended(reward, is_won_or_lost=True) for reward in (1.5, -1.0, 0.0)]
    assert found == ["won +1.500", "lost −1", "draw"]
    assert ended(0.0, is_won_or_lost=False) == "return ■ 0"


async def test_a_click_on_a_field_of_the_board_takes_it(make_app: MakeApp):
    app = make_app(MovesFirst(), agent="tic_tac_toe")
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "Click a field, or type its number.")
        board = app.screen.query_one(Board)
        lines = shown(pilot).split("\n")
        free = app.screen.choices[-1].key  # type: ignore[attr-defined]
        y, line = next((y, line) for y, line in enumerate(lines) if f"   {free}   " in line)
        # The field is three lines high and seven columns wide; its key stands in its middle.
        x = line.index(f"   {free}   ")
        await pilot.click(Board, offset=(x - board.region.x, y + 1 - board.region.y))
        await until(pilot, lambda: "you bottom" in shown(pilot) or "you middle" in shown(pilot))
        await pilot.press("tab")
        await sees(pilot, f" {app.screen.choices[0].key}  {app.screen.choices[0].name}")  # type: ignore[attr-defined]


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
        await until(pilot, lambda: "are not on disk and would be" in shown(pilot))
        await pilot.press("n")
        await until(pilot, lambda: not isinstance(app.screen, QuitDialog))
        await pilot.press("h")
        await reaches(pilot, HumanTableScreen)
        folder.unlink()
        await pilot.press("enter")
        await play_one(pilot, app)
        await pilot.press("tab")
        await sees(pilot, "2 episodes saved to")
    assert len(demo_files.read(demo_files.default_path("blackjack"))) == 2


async def test_where_actions_have_no_keys_a_person_writes_replies(
    make_app: MakeApp, tmp_path: Path
):
    file = tmp_path / "pendulum.py"
    file.write_text(
        "from llamagym_tui import Agent\n"
        "class PendulumAgent(Agent):\n"
        "    env_id = 'Pendulum-v1'\n"
        "    def get_system_prompt(self): return 'Swing.'\n"
        "    def format_observation(self, observation): return 'It swings.'\n"
        "    def extract_action(self, response): return [float(response)]\n"
    )
    app = LlamaGymApp(
        RunConfig(agent=str(file), run_dir=str(tmp_path / "run")),
        client_factory=lambda: fakes.FakeClient(),
    )
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "enter sends the reply")
        await pilot.press(*"up", "enter")
        await sees(pilot, "extract_action failed on the reply 'up': ValueError")
        await pilot.press("backspace", "backspace", "2", "enter", "tab")
        await sees(pilot, "[2.0]  ")
        assert "return so far −" in shown(pilot)
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)


def environment_table(agent: str) -> TableApp:
    return TableApp(RunConfig(agent=agent, run_dir="", seed=6))


async def test_a_table_of_an_environment_shows_what_a_model_is_told_and_what_came_of_each_reply():
    app = environment_table("blackjack")
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "Your total: 19. Usable ace: no. Dealer shows: 6.")
        screen = shown(pilot)
        assert "observation (19, 6, 0)" in screen
        assert "system  You are playing Blackjack." in screen
        assert "Finished episodes are appended to" in screen
        await pilot.press("colon", *"Action: hit", "enter")
        await sees(pilot, "reward −1 · return so far −1 · observation (29, 6, 0)")
        assert "action  hit · read by pattern · reward −1" in shown(pilot)
        await pilot.press("enter", "escape", "s")
        await sees(pilot, "you stick")
        await sees(pilot, "2 episodes saved to")
        first = demo_files.read(demo_files.default_path("blackjack"))[0]
        assert (first.seed, first.replies) == (episode_seed(6, 0), ["Action: hit"])
        await pilot.press("escape")
        await until(pilot, lambda: app._exit)


async def test_after_an_episode_no_reply_is_begun_and_none_waits_for_the_next():
    app = environment_table("blackjack")
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "s  stick")
        assert app.screen.active_bindings["colon"].enabled
        await pilot.press("s")
        await sees(pilot, "you stick")
        assert not app.screen.active_bindings["colon"].enabled
        await pilot.press("colon", "x", "space")
        await sees(pilot, "a key takes its action at once")
        await pilot.press("colon")
        await sees(pilot, "enter sends the reply")
        await pilot.press(*"Action: stick", "enter")
        await sees(pilot, "2 episodes saved to")
        await pilot.press("escape")
        await until(pilot, lambda: app._exit)


async def test_what_is_typed_after_a_reply_without_an_action_replaces_it():
    app = environment_table("blackjack")
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "s  stick")
        await pilot.press("colon", *"bla 7", "enter")
        await sees(pilot, "The reply names no action. Nothing was done.")
        assert "bla 7" in shown(pilot), "it can be mended"
        await pilot.press(*"Action: stick", "enter")
        await sees(pilot, "1 episode saved to")
    (demo,) = demo_files.read(demo_files.default_path("blackjack"))
    assert demo.replies == ["Action: stick"]


async def test_arrow_keys_walk_on_a_grid(tmp_path: Path):
    app = LlamaGymApp(
        RunConfig(agent="frozen_lake", run_dir=str(tmp_path / "run")),
        client_factory=lambda: fakes.FakeClient(),
    )
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "a key takes its action at once, arrow keys too")
        await pilot.press("down")
        await sees(pilot, "you down")
        await pilot.press("up")
        await sees(pilot, "you up")
