"""The playground by its keys, against a scripted trainer."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import TextArea

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.commands import Pause, Resume, SetMode, SetSystemPrompt
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    EpisodeStarted,
    ModeChanged,
    PhaseChanged,
    Progressed,
    PromptChanged,
    RolledBack,
    SessionFailed,
    SettingsChanged,
    WarmStartProgressed,
    WarningRaised,
)
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.screens.play.table import HumanTableScreen
from llamagym_tui.screens.playground.lines import Status
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.playground.prompt_editor import PromptEditor
from llamagym_tui.screens.widgets.dialogs import QuitDialog
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import is_drawn, reaches, rolling_out, sees, shown, until, widget_text

SMALL, LARGE = (80, 24), (160, 45)
DEATH = "The trainer died (killed by SIGKILL). Its log is /runs/demo/trainer.log."


async def test_the_watched_conversation_streams(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        hand = list(fakes.hand(7, [("Your total: 14.", '{"action": 1}', "json")], -1.0))
        client.emit(*hand[:3])
        await sees(pilot, '7       Your total: 14.  {"ac▌')
        client.emit(*hand[3:])
        await sees(pilot, "▼ −1")
        assert client.started is not None


async def test_figures_and_curve_stand_beside_the_conversation_of_a_wide_terminal(
    make_app: MakeApp,
):
    client = fakes.FakeClient(fakes.demo_run())
    async with make_app(client).run_test(size=LARGE) as pilot:
        await sees(pilot, "best −0.047")
        for text in ("just played", "0.3% of replies name no action"):
            await sees(pilot, text)
        await until(pilot, lambda: is_drawn(pilot.app.screen), "the chart")


async def test_space_pauses_and_goes_on(make_app: MakeApp):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("space")
        await sees(pilot, "Paused. space resumes")
        await pilot.press("space")
        await until(pilot, lambda: "Paused." not in shown(pilot))
        assert client.sent == [Pause(), Resume()]


@pytest.mark.parametrize("key", [pytest.param("settings", marks=pytest.mark.slow), "roll back"])
async def test_a_collapse_stays_in_sight_until_something_is_done_about_it(
    make_app: MakeApp, key: str
):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SMALL) as pilot:
        collapsed = WarningRaised(
            message="The policy has collapsed: losses. Roll back.", collapsed=True
        )
        client.emit(collapsed, WarningRaised(message="The disk is full."))
        banner = pilot.app.screen.query_one(Status)
        told = "After update 0: The policy has collapsed: losses. Roll back."
        await until(pilot, lambda: told in widget_text(banner))
        client.emit(
            SettingsChanged(changes={"ppo.lr": 1e-4})
            if key == "settings"
            else RolledBack(update=0, reason=".")
        )
        await until(pilot, lambda: "collapsed" not in widget_text(banner))


async def test_a_pause_is_shown_as_pending_until_the_trainer_confirms_it(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("space")
        await sees(pilot, "pausing · episode")
        assert "Paused." not in shown(pilot)
        client.emit(PhaseChanged(phase="paused"))
        await sees(pilot, "Paused.")


async def test_t_switches_to_inference_and_says_so_in_words(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("t")
        await sees(pilot, "LEARNING → NOT LEARNING?")
        assert client.sent == [SetMode(mode="inference")]
        client.emit(ModeChanged(mode="inference"))
        await sees(pilot, "NOT LEARNING  Blackjack")
        await sees(pilot, "Not learning: it only plays. t learns again.")
        await pilot.press("t")
        assert client.sent[-1] == SetMode(mode="train")


async def test_a_prompt_is_pending_until_confirmed_and_then_awaits_its_episode(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run(), confirms=False)
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("p")
        await reaches(pilot, PromptEditor)
        app.screen.query_one(TextArea).text = "Hit below 13."
        await pilot.press("ctrl+s")
        await sees(pilot, "Pending: the new system prompt.")
        assert client.sent == [SetSystemPrompt(system_prompt="Hit below 13.")]
        client.emit(PromptChanged(prompt_version=2, system_prompt="Hit below 13."))
        await sees(pilot, "applies from the next episode on")
        new = EpisodeStarted(
            episode=30_000, system_prompt="Hit below 13.", prompt_version=2, mode="train"
        )
        client.emit(new)
        await sees(pilot, "30,000 ")
        assert "applies from the next" not in shown(pilot).split("\n")[1]


async def test_q_asks_while_the_model_is_trained(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("q")
        await reaches(pilot, QuitDialog)
        await pilot.press("n")
        await reaches(pilot, PlaygroundScreen)
        assert not client.stopped
        await pilot.press("q")
        await reaches(pilot, QuitDialog)
        await pilot.press("y")
        await until(pilot, lambda: client.stopped)
    assert app.return_code == 0


async def test_q_leaves_at_once_while_nothing_is_trained_and_no_run_is_left(tmp_path: Path):
    client = fakes.FakeClient(list(fakes.opening_events())[:2])
    config = fakes.config(tmp_path / "unbegun")
    RunStore.create(config).close()
    app = LlamaGymApp(config, client_factory=lambda: client)
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "h opens a table of your own")
        await pilot.press("q")
        await until(pilot, lambda: client.stopped)
    assert not (tmp_path / "unbegun").exists()


@pytest.mark.parametrize("end", ["death", "failure"])
async def test_the_death_of_the_trainer_is_told_and_the_table_still_opens(
    make_app: MakeApp, tmp_path: Path, end: str
):
    client = fakes.FakeClient(fakes.demo_run())
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "20,494 ")
        if end == "death":
            client.die(DEATH)
        else:
            client.emit(SessionFailed(message=DEATH))
        await sees(pilot, "NO TRAINER")
        await until(
            pilot, lambda: "The trainer died (killed by SIGKILL)." in " ".join(shown(pilot).split())
        )
        flat = " ".join(shown(pilot).split())
        assert "/runs/demo/trainer.log" in flat
        assert "h still opens the table" in flat
        assert "Your total" in flat, "the conversation stays readable"
        await pilot.press("space", "t")
        assert client.sent == []
        await pilot.press("h")
        await reaches(pilot, HumanTableScreen)
        await sees(pilot, "a key takes its action at once")
        await pilot.press("escape", "q")
    assert app.return_code == 1


async def test_r_starts_a_dead_trainer_again_and_keeps_what_was_seen(make_app: MakeApp):
    clients = [fakes.FakeClient(fakes.demo_run()), fakes.FakeClient()]
    app = make_app(clients[0])
    app._client_factory = iter(clients).__next__
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "20,494 ")
        assert "Restart" not in shown(pilot)
        clients[0].die(DEATH)
        await sees(pilot, "r Restart")
        await pilot.press("r")
        await sees(pilot, "The trainer is started again.")
        await sees(pilot, "episode ")
        assert "NO TRAINER" not in shown(pilot)
        assert clients[1].started is not None
        assert clients[1].started.resume is False, "there is no checkpoint in this folder"


async def test_a_full_disk_stays_on_the_screen_until_a_checkpoint_is_written(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run())
    client.stop_takes_s = 0.5
    app = make_app(client, mode="inference")
    full = WarningRaised(message="No space left on device.", refused="checkpoint", unwritten=True)
    async with rolling_out(app, LARGE) as pilot:
        client.emit(full, *fakes.hand(900, [("Your total: 12.", '{"action": 0}', "json")], 1.0))
        await sees(pilot, "No space left on device. Make room there, or")
        client.emit(CheckpointSaved(update=1))
        await until(pilot, lambda: "Make room" not in widget_text(app.screen.query_one(Status)))
        client.emit(full)
        await sees(pilot, "No space left on device. Make room there")
        await pilot.press("q", "y")
        await sees(pilot, "again leaves without it.")
        assert "writes its checkpoint and ends" not in shown(pilot)


async def test_who_leaves_while_the_disk_is_full_is_told_what_is_lost(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run())
    full = WarningRaised(message="No space left on device.", refused="checkpoint", unwritten=True)
    async with rolling_out(make_app(client), LARGE) as pilot:
        client.emit(full)
        await sees(pilot, "Make room there")
        await pilot.press("q")
        await sees(pilot, "and nothing can be")
        assert "Leaving writes a checkpoint" not in shown(pilot)


async def test_what_takes_seconds_stands_under_the_header_with_the_time_left(make_app: MakeApp):
    client = fakes.FakeClient(fakes.opening_events())
    app = make_app(client)
    async with app.run_test(size=(120, 34)) as pilot:
        client.emit(Progressed(doing="playing", done=384, total=1024, left_s=40.4))
        await sees(pilot, "playing 1,024 turns, then it learns ███▊░░░░░░ 384 of 1,024, 40 s left")
        client.emit(PhaseChanged(phase="updating"))
        await sees(pilot, "learning")
        assert "40 s left" not in shown(pilot)
        client.emit(Progressed(doing="learning", done=61, total=100, left_s=130.0))
        await sees(pilot, "learning ██████▏░░░ 61 of 100, 130 s left")
        client.emit(PhaseChanged(phase="evaluating", detail="12 of 1,000 episodes, 3 min left"))
        await sees(pilot, "evaluating: 12 of 1,000 episodes, 3 min left")
        client.emit(
            PhaseChanged(phase="warm_starting"),
            WarmStartProgressed(step=3, steps=96, loss=0.5, left_s=61.0),
        )
        await sees(
            pilot, "A warm start is under way: step 3 of 96, loss 0.500, 61 s left. f shows it."
        )
