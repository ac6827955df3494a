"""A person's table in the app: opens at once, plays, saves, and shows the file."""

from __future__ import annotations

from pathlib import Path

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.config import RunConfig
from llamagym_tui.demos import files as demo_files
from llamagym_tui.protocol.commands import ProbeActions
from llamagym_tui.protocol.events import ConversationProbed, PromptChanged, UpdateFinished
from llamagym_tui.screens.play.table import HumanTableScreen
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.widgets.dialogs import QuitDialog
from llamagym_tui.screens.widgets.fields import SentenceInput
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import reaches, rolling_out, sees, shown, stands_still, until

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
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)
    [demo] = demo_files.read(path)
    assert (demo.agent, demo.source, demo.seed, demo.recorded_at) == (
        "blackjack",
        "human",
        1,
        "2026-01-02T12:00:00Z",
    )


async def test_the_table_uses_the_prompt_that_the_trainer_confirmed(make_app: MakeApp):
    client = fakes.FakeClient()
    client.emit(PromptChanged(prompt_version=2, system_prompt="Be bold."))
    async with make_app(client).run_test(size=SIZE) as pilot:
        await sees(pilot, "prompt v2 “Be bold.”: applies")
        await pilot.press("h")
        await sees(pilot, "system  Be bold.")


async def test_the_table_stays_as_it_was_left(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await play_one(pilot, app)
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)
        await pilot.press("h")
        await sees(pilot, "The episode is over")
        await sees(pilot, "1 episode, sum")


async def test_a_sentence_that_was_begun_waits_at_the_table(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "Your total:")
        await pilot.press("tab", *"Low", "escape", "escape")
        await reaches(pilot, PlaygroundScreen)
        await pilot.press("h")
        await sees(pilot, "Low")
        await pilot.press("h")
        await sees(pilot, 'you     Low {"action": 1}')
        assert app.screen.query_one(SentenceInput).value == ""


async def test_a_table_that_was_left_while_it_saved_draws_nothing_more(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "Your total:")
        table = app.screen
        assert isinstance(table, HumanTableScreen)
        await app.pop_screen()
        assert not table.children
        table.draw()
        assert isinstance(app.screen, PlaygroundScreen)


async def test_a_full_disk_loses_no_episode(make_app: MakeApp):
    app = make_app(fakes.FakeClient(list(fakes.opening_events())[:2]))
    folder = demo_files.default_path("blackjack").parent
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await play_one(pilot, app)
        await sees(pilot, "1 not saved, kept in memory (ctrl+s tries again)")
        await pilot.press("escape", "q")
        await reaches(pilot, QuitDialog)
        assert "would be lost" in " ".join(shown(pilot).split())
        await pilot.press("n", "h")
        await sees(pilot, "^s Save again")
        folder.unlink()
        await pilot.press("ctrl+s")
        await sees(pilot, "1 episode saved to")
    assert len(demo_files.read(demo_files.default_path("blackjack"))) == 1


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


async def test_a_key_takes_its_action_at_once_as_at_the_wheel(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "a key takes its action at once · tab says why first")
        await pilot.press("up", "left")
        assert "chosen by you" not in shown(pilot), "no action is called so"
        await pilot.press("s")
        await sees(pilot, "action  stick · chosen by you")
        await sees(pilot, "dealer ")
        assert "░░" not in shown(pilot), "the dealer's cards are turned"
        await pilot.press("s", "h")
        await sees(pilot, "The episode is over")


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


async def test_a_question_mark_is_help_unless_a_sentence_is_written(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "Your total:")
        await pilot.press("question_mark")
        await sees(pilot, "Add a sentence that the reply begins with.")
        await pilot.press("escape", "tab", "question_mark")
        await until(pilot, lambda: app.screen.query_one(SentenceInput).value == "?")


async def test_actions_are_taken_by_clicks(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, " s  stick    h  hit")
        await stands_still(pilot)
        await pilot.click("#choices", offset=(5, 1))
        await sees(pilot, "action  stick")


async def test_a_sentence_stands_before_the_action_in_the_reply(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "Your total:")
        await pilot.press("tab", *"High, so ", "s", "t", "o", "p", "enter", "s")
        await sees(pilot, 'you     High, so stop {"action": 0}')
        await sees(pilot, "1 episode saved to")
    [demo] = demo_files.read(demo_files.default_path("blackjack"))
    assert demo.messages[2]["content"] == 'High, so stop {"action": 0}'
    assert demo_files.check(demo_files.default_path("blackjack"), BlackjackAgent()) == []


async def test_keys_of_actions_are_letters_while_a_sentence_is_written(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "Your total:")
        await pilot.press("tab", "h", "s")
        await sees(pilot, "write why; after enter a key takes its action at once")
        await pilot.press("escape")
        await sees(pilot, "tab says why first")
        assert isinstance(app.screen, HumanTableScreen)
        assert app.screen.query_one(SentenceInput).value == "hs"
        await pilot.press("s")
        await sees(pilot, 'you     hs {"action": 0}')


async def test_an_episode_is_discarded_and_kept_after_all(make_app: MakeApp):
    app = make_app()
    path = demo_files.default_path("blackjack")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await play_one(pilot, app)
        await sees(pilot, "1 episode saved to")
        await pilot.press("backspace")
        await sees(pilot, "Discarded: backspace keeps it after all.")
        assert demo_files.read(path) == []
        await pilot.press("backspace")
        await sees(pilot, "Kept: backspace discards it.")
        assert len(demo_files.read(path)) == 1


async def test_the_state_is_drawn_and_the_experts_hint_is_hidden_until_requested(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "░░")
        assert "expert:" not in shown(pilot)
        await pilot.press("ctrl+e")
        await sees(pilot, "expert: ")
        await pilot.press("ctrl+e")
        await until(pilot, lambda: "expert:" not in shown(pilot), "the hint is hidden")


def questions(client: fakes.FakeClient) -> list[ProbeActions]:
    return [command for command in client.sent if isinstance(command, ProbeActions)]


def probed(ticket: int, *shares: float) -> ConversationProbed:
    return ConversationProbed(ticket=ticket, names=["stick", "hit"], shares=list(shares))


async def test_the_hint_shows_what_the_policy_would_do(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "Your total:")
        assert not questions(client)
        await pilot.press("ctrl+e")
        await sees(pilot, "policy: requested; the trainer answers between two steps; expert: ")
        await until(pilot, lambda: questions(client))
        [question] = questions(client)
        assert [message["role"] for message in question.messages] == ["system", "user"]
        assert question.messages[1]["content"].startswith("Your total:")
        client.emit(probed(question.ticket, 0.29, 0.71))
        await sees(pilot, "policy: hit 71%, stick 29%; expert: ")


async def test_an_answer_to_another_turn_is_not_shown_and_another_policy_is_requested_again(
    make_app: MakeApp,
):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("h", "ctrl+e")
        await until(pilot, lambda: len(questions(client)) == 1)
        await pilot.press("s", "enter")
        await until(pilot, lambda: len(questions(client)) == 2)
        first, second = questions(client)
        client.emit(probed(first.ticket, 0.9, 0.1), fakes.counted([1.0], 1))
        client.emit(UpdateFinished(update=1, episodes=1, stats=fakes.STATS))
        await until(pilot, lambda: len(questions(client)) == 3)
        assert questions(client)[2].messages == second.messages
        assert "stick 90%" not in shown(pilot)
        client.emit(probed(questions(client)[2].ticket, 0.2, 0.8))
        await sees(pilot, "policy: hit 80%, stick 20%")


async def test_while_the_model_loads_the_hint_waits_and_requests_once_it_is_there(
    make_app: MakeApp,
):
    client = fakes.FakeClient(list(fakes.opening_events())[:2])
    app = make_app(client)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "loading the model")
        await pilot.press("h", "ctrl+e")
        await sees(pilot, "policy: the model is still loading; expert: ")
        client.emit(fakes.run_started())
        await until(pilot, lambda: questions(client))


async def test_k_keeps_the_watched_episode_once(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    path = demo_files.default_path("blackjack")
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await sees(pilot, "rolling out")
        await pilot.press("K")
        assert not path.exists()
        client.emit(*fakes.hand(7, [("Your total: 14.", '{"action": 1}', "json")], -1.0))
        await sees(pilot, "▼ −1")
        await pilot.press("K", "K")
        await until(pilot, path.exists)
        await sees(pilot, "Episode 7 (return")
    [demo] = demo_files.read(path)
    assert (demo.source, demo.model, demo.actions, demo.seed) == ("model", "bundled", [1], None)
    assert demo_files.check(path, BlackjackAgent()) == []


async def test_an_episode_whose_reply_names_no_action_is_not_kept(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await sees(pilot, "rolling out")
        client.emit(*fakes.hand(7, [("Your total: 14.", "I think", "failed")], -1.0))
        await sees(pilot, "▼ −1")
        await pilot.press("K")
        await sees(pilot, "was not kept")
    assert not demo_files.default_path("blackjack").exists()
