"""The playground by its keys, against a scripted trainer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.color import Color
from textual.widgets import TextArea

from llamagym_tui.app.app import FLOOD, PAINT_FLOOD_S, PAINT_IDLE_S, PAINT_S
from llamagym_tui.app.leaving import log_path, parting_text
from llamagym_tui.config import RunConfig
from llamagym_tui.protocol.commands import Pause, Resume, SetMode, SetSystemPrompt
from llamagym_tui.protocol.events import (
    AnyEvent,
    CheckpointSaved,
    EpisodeStarted,
    ModeChanged,
    PhaseChanged,
    Progressed,
    PromptChanged,
    RolledBack,
    SessionFailed,
    SettingsChanged,
    SettingsMeasured,
    WarmStartProgressed,
    WarningRaised,
)
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.play.table import HumanTableScreen
from llamagym_tui.screens.playground.banner import Banner, sentences
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.steering.prompt_editor import PromptEditor
from llamagym_tui.screens.widgets.dialogs import QuitDialog
from llamagym_tui.screens.widgets.run_header import PHASES, RunHeader
from llamagym_tui.state.reduce import reduce, trainer_lost
from llamagym_tui.state.run import initial_state
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import is_drawn, reaches, rolling_out, sees, shown, until, widget_text

SMALL, LARGE = (80, 24), (160, 45)
DEATH = "The trainer died (killed by SIGKILL). Its log is /runs/demo/trainer.log."


async def test_a_screen_that_is_left_while_it_is_furnished_costs_nothing(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    app = make_app()
    monkeypatch.setattr(Banner, "on_mount", lambda _: app.exit(), raising=False)
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: not app.is_running)
    assert app.fault is None
    assert not log_path().exists()


@pytest.mark.parametrize("exits", [True, False])
async def test_a_widget_that_looks_for_its_place_when_the_app_is_left_is_no_fault(
    make_app: MakeApp, exits: bool
):
    app = make_app()
    async with app.run_test(size=LARGE) as pilot:
        await reaches(pilot, PlaygroundScreen)
        if exits:
            app.exit()
        else:
            app._running = False  # as closing does first
        app.screen.call_next(app.screen.query_one, "#gone")
    assert (app.return_code or 0, app.fault) == (0, None)
    assert "NoMatches" in log_path().read_text()


async def test_the_watched_conversation_streams(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        hand = list(fakes.hand(7, [("Your total: 14.", '{"action": 1}', "json")], -1.0))
        client.emit(*hand[:3])
        await sees(pilot, '7       Your total: 14.       {"ac▌')
        client.emit(*hand[3:])
        await sees(pilot, "▼ −1")
        await pilot.press("k", "enter")
        await sees(pilot, "return ▌▼ −1 · 1 turn, terminated")
        screen = shown(pilot)
        assert "system ▌You are playing Blackjack." in screen
        assert "env    ▌Your total: 14." in screen
        assert "action ▌hit · read as JSON · reward −1" in screen
        assert client.started is not None


async def test_a_reply_without_an_action_is_told_in_words(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run())
    async with make_app(client).run_test(size=SMALL) as pilot:
        await sees(pilot, "no action named  ▼ −1")
        await pilot.press("k", "k", "k", "enter")
        await sees(pilot, "action ▌stick · fallback, because the reply names no action · reward −1")


async def test_the_header_tells_agent_model_mode_phase_episode_and_speed(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run())
    async with make_app(client).run_test(size=LARGE) as pilot:
        await sees(pilot, "TRAIN  Blackjack · Blackjack-v1 · bundled")
        await sees(pilot, "rolling out · episode 20,480 · 212 ep/s")


async def test_figures_and_curve_stand_beside_the_conversation_of_a_wide_terminal(
    make_app: MakeApp,
):
    client = fakes.FakeClient(fakes.demo_run())
    async with make_app(client).run_test(size=LARGE) as pilot:
        await sees(pilot, "of 1,000 episodes")
        await sees(pilot, "optimal −0.047")
        for text in ("KL ref      0.031", "clip frac   8.3%", "parse fail  0.3%"):
            await sees(pilot, text)
        await until(pilot, lambda: is_drawn(pilot.app.screen), "the chart")


@pytest.mark.parametrize(
    ("width", "name"),
    [(200, "return ±95% "), (120, "return ±95% "), (80, "return ±95% "), (60, "return ")],
)
async def test_where_there_is_room_the_return_says_what_its_plus_minus_is(
    make_app: MakeApp, width: int, name: str
):
    async with make_app(fakes.FakeClient(fakes.demo_run())).run_test(size=(width, 34)) as pilot:
        await sees(pilot, f"{name}−0.003 ± 0.060")


@pytest.mark.parametrize(("size", "has_curve"), [((80, 24), True), ((79, 20), False)])
async def test_a_small_terminal_has_a_curve_of_six_rows_and_the_smallest_has_bars(
    make_app: MakeApp, size: tuple[int, int], has_curve: bool
):
    client = fakes.FakeClient(fakes.demo_run())
    async with make_app(client).run_test(size=size) as pilot:
        await sees(pilot, "optimal −0.047")
        if has_curve:
            await pilot.press("a")
            await until(pilot, lambda: is_drawn(pilot.app.screen), "the chart")
            assert pilot.app.screen.query_one("Plot").size.height == 6
        else:
            await sees(pilot, "█")
            assert not is_drawn(pilot.app.screen)


async def test_space_pauses_and_goes_on(make_app: MakeApp):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("space")
        await sees(pilot, "Paused. space resumes.")
        await sees(pilot, "space Resume")
        await pilot.press("space")
        await sees(pilot, "space Pause")
        assert client.sent == [Pause(), Resume()]


def test_the_title_of_a_run_is_the_same_in_every_phase():
    state = initial_state(fakes.config(Path("/runs/demo")))
    for event in (*fakes.opening_events(), fakes.counted([1.0] * 128, 20_480)):
        state = reduce(state, event)
    for width in range(60, 121):
        titles = set()
        for phase in ("rolling_out", "updating"):
            header = RunHeader(replace(state, phase=phase), id="header").content_at(width).plain
            left, _, _ = header.partition(PHASES[phase])
            titles.add(left.rstrip())
        assert len(titles) == 1, titles


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
        banner = pilot.app.screen.query_one(Banner)
        told = "After update 0: The policy has collapsed: losses. Roll back."
        await until(pilot, lambda: banner.display and told in widget_text(banner))
        client.emit(
            SettingsChanged(changes={"ppo.lr": 1e-4})
            if key == "settings"
            else RolledBack(update=0, reason=".")
        )
        await until(pilot, lambda: not banner.display)


async def test_a_pause_is_shown_as_pending_until_the_trainer_confirms_it(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("space")
        await sees(pilot, "rolling out, pausing")
        assert "Paused." not in shown(pilot)
        client.emit(PhaseChanged(phase="paused"))
        await sees(pilot, "Paused.")


async def test_t_switches_to_inference_and_says_so_in_words(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("t")
        await sees(pilot, "TRAIN → inference?")
        assert client.sent == [SetMode(mode="inference")]
        client.emit(ModeChanged(mode="inference"))
        await sees(pilot, "INFERENCE  Blackjack")
        await sees(pilot, "Inference: nothing is trained, no episode enters a batch.")
        await pilot.press("t")
        assert client.sent[-1] == SetMode(mode="train")


async def test_a_prompt_is_pending_until_confirmed_and_then_awaits_its_episode(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run(), confirms=False)
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "Dealer shows: 10.")
        await pilot.press("p")
        await reaches(pilot, PromptEditor)
        app.screen.query_one(TextArea).text = "Hit below 13."
        await pilot.press("ctrl+s")
        await sees(pilot, "The new system prompt is pending")
        assert client.sent == [SetSystemPrompt(system_prompt="Hit below 13.")]
        client.emit(PromptChanged(prompt_version=2, system_prompt="Hit below 13."))
        await sees(pilot, "Prompt v2 applies from the next episode on.")
        new = EpisodeStarted(
            episode=30_000, system_prompt="Hit below 13.", prompt_version=2, mode="train"
        )
        client.emit(new)
        await sees(pilot, "30,000 ")
        assert "applies from the next" not in shown(pilot).split("\n")[1]


async def test_escape_leaves_the_prompt_as_it_is(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("p")
        await reaches(pilot, PromptEditor)
        await pilot.press("x", "q", "space", "escape")
        await reaches(pilot, PlaygroundScreen)
        assert client.sent == []


async def test_keys_of_a_search_are_the_last_while_one_searches(make_app: MakeApp):
    app = make_app()
    async with rolling_out(app, LARGE) as pilot:
        await sees(pilot, "^r Roll back")
        await pilot.press("slash")
        await sees(pilot, "esc End search")
        assert "Roll back" not in shown(pilot)
        await pilot.press("escape")
        await sees(pilot, "^r Roll back")


async def test_a_return_is_legible_on_every_light_theme(make_app: MakeApp):
    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        view = pilot.app.screen.query_one(ConversationView)
        for theme in [
            theme.name
            for theme in app.available_themes.values()
            if not theme.dark and not theme.ansi
        ]:
            app.theme = theme
            await pilot.pause()
            for style in ("won", "lost", "warning", "notice"):
                ink, paper = (
                    view.get_component_styles(f"conversation--{style}").color,
                    view.background_colors[1],
                )
                assert contrast(ink, paper) > 3, (theme, style)


def contrast(*colors: Color) -> float:
    """WCAG 2's ratio of relative luminances."""
    dark, light = sorted(
        sum(
            weight * (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4)
            for weight, part in zip((0.2126, 0.7152, 0.0722), color.normalized, strict=True)
        )
        for color in colors
    )
    return (light + 0.05) / (dark + 0.05)


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


async def test_q_leaves_at_once_while_nothing_is_trained(make_app: MakeApp):
    client = fakes.FakeClient(list(fakes.opening_events())[:2])
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "h opens a table for you meanwhile")
        await pilot.press("q")
        await until(pilot, lambda: client.stopped)


@pytest.mark.parametrize("played", [True, False])
def test_demonstrations_are_called_safe_only_where_there_are_some(tmp_path: Path, played: bool):
    demos = tmp_path / "blackjack.jsonl"
    if played:
        demos.write_text("{}\n")
    state = trainer_lost(initial_state(fakes.config(tmp_path)), DEATH)
    told = [each.text for each in sentences(state, lambda: str(demos), lambda id, usual: usual)]
    assert (f"Your demonstrations are safe in {demos}; h still opens the table." in told) == played
    assert ("h still opens the table." in told) != played


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
        await sees(pilot, "Your total:")
        await pilot.press("escape", "q")
    assert app.return_code == 1


def hands_before(first: int) -> Iterator[AnyEvent]:
    """Thirty hands, more than a small terminal shows."""
    for episode in range(first, first + 30):
        yield from fakes.hand(episode, [("Your total: 14.", '{"action": 1}', "json")], 1.0)


async def test_the_conversation_follows_its_tail_until_it_is_scrolled(make_app: MakeApp):
    client = fakes.FakeClient([*fakes.demo_run(), *hands_before(20_500)])
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "20,529 ")
        view = app.screen.query_one(ConversationView)
        assert view.following
        await pilot.press("pageup")
        top = view.scroll_offset.y
        client.emit(*fakes.hand(20_600, [("Your total: 9.", '{"action": 1}', "json")], 1.0))
        await sees(pilot, "▼ 2 new messages below")
        assert view.scroll_offset.y == top
        assert "20,600" not in shown(pilot)
        await pilot.press("end")
        await sees(pilot, "20,600")
        await until(pilot, lambda: "goes to the newest" not in shown(pilot))


async def test_a_terminal_that_is_too_small_says_so(make_app: MakeApp):
    client = fakes.FakeClient()
    async with make_app(client).run_test(size=(58, 15)) as pilot:
        await sees(pilot, "terminal too small: it needs 60 × 16")
        await pilot.resize_terminal(80, 24)
        await sees(pilot, "space Pause")


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
        await sees(pilot, "rolling out")
        assert "NO TRAINER" not in shown(pilot)
        assert clients[1].started is not None
        assert clients[1].started.resume is False, "there is no checkpoint in this folder"


async def test_a_trainer_that_is_started_again_goes_by_what_the_first_batch_has_decided(
    make_app: MakeApp,
):
    measured = SettingsMeasured(
        values={"ppo.gamma": 0.99}, reasons={"ppo.gamma": "discount 0.99: long"}
    )
    written = CheckpointSaved(update=1)
    clients = [
        fakes.FakeClient([*fakes.opening_events(), measured, written]),
        fakes.FakeClient(),
    ]
    app = make_app(clients[0])
    app._client_factory = iter(clients).__next__
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "Measured in the first batch: discount 0.99")
        clients[0].die(DEATH)
        await sees(pilot, "r Restart")
        await pilot.press("r")
        await until(pilot, lambda: clients[1].started is not None)
        again = clients[1].started
        assert again is not None
        assert (again.resume, again.ppo.gamma, again.measured) == (True, 0.99, measured.reasons)


async def test_leaving_says_that_the_checkpoint_is_written(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run())
    client.stop_takes_s = 0.5
    app = make_app(client, mode="inference")
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("q", "y")
        await sees(pilot, "The trainer writes its checkpoint and ends.")
        await until(pilot, lambda: client.stopped)


async def test_a_full_disk_stays_on_the_screen_until_a_checkpoint_is_written(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run())
    client.stop_takes_s = 0.5
    app = make_app(client, mode="inference")
    full = WarningRaised(message="No space left on device.", refused="checkpoint", unwritten=True)
    async with rolling_out(app, LARGE) as pilot:
        client.emit(full, *fakes.hand(900, [("Your total: 12.", '{"action": 0}', "json")], 1.0))
        await sees(pilot, "No space left on device. Make room there; or")
        client.emit(CheckpointSaved(update=1))
        await until(pilot, lambda: "No space" not in app.screen.query_one(Banner).visual.plain)
        client.emit(full)
        await sees(pilot, "No space left on device. Make room there")
        await pilot.press("q", "y")
        await sees(pilot, "again leaves without it.")
        assert "writes its checkpoint and ends" not in shown(pilot)


async def test_whoever_leaves_before_a_turn_was_played_is_promised_no_checkpoint(make_app: MakeApp):
    client = fakes.FakeClient(fakes.opening_events())
    client.stop_takes_s = 0.5
    app = make_app(client)
    async with app.run_test(size=LARGE) as pilot:
        await sees(pilot, "rolling out")
        await pilot.press("q")
        await sees(pilot, "this run has no checkpoint")
        assert "Leaving writes a checkpoint" not in shown(pilot)
        await pilot.press("n")
        client.emit(*fakes.hand(0, [("Your total: 12.", '{"action": 0}', "json")], 1.0))
        await sees(pilot, "▲ +1")
        await pilot.press("q")
        await sees(pilot, "Leaving writes a checkpoint")
        await pilot.press("y")
        await sees(pilot, "The trainer writes its checkpoint and ends.")
        await until(pilot, lambda: client.stopped)


async def test_a_trainer_that_has_nothing_to_keep_only_ends(make_app: MakeApp):
    client = fakes.FakeClient(fakes.opening_events())
    client.stop_takes_s = 0.5
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "rolling out")
        await pilot.press("q", "y")
        await sees(pilot, "The trainer ends.")
        await until(pilot, lambda: client.stopped)
    assert app.run_state is not None
    assert app.config is not None
    lost = "The run has no checkpoint to resume."
    assert parting_text(app.config, app.run_state) == lost


async def test_what_takes_seconds_stands_under_the_header_with_the_time_left(make_app: MakeApp):
    client = fakes.FakeClient(fakes.opening_events())
    app = make_app(client)
    async with app.run_test(size=(120, 34)) as pilot:
        client.emit(Progressed(doing="collecting turns", done=384, total=1024, left_s=40.4))
        await sees(pilot, "collecting turns ███▊░░░░░░ 384 of 1,024 · next update in 40 s")
        client.emit(PhaseChanged(phase="updating"))
        await sees(pilot, "updating · episode 0")
        assert "in 40 s" not in shown(pilot)
        client.emit(Progressed(doing="updating", done=61, total=100, left_s=130.0))
        await sees(pilot, "updating ██████▏░░░ pass 2 of 2 · 61% · 2 min left")
        client.emit(PhaseChanged(phase="evaluating", detail="12 of 1,000 episodes, 3 min left"))
        await sees(pilot, "evaluating: 12 of 1,000 episodes, 3 min left")
        client.emit(
            PhaseChanged(phase="warm_starting"),
            WarmStartProgressed(step=3, steps=96, loss=0.5, left_s=61.0),
        )
        await sees(pilot, "warm start: step 3 of 96, loss 0.500, 61 s left")


async def test_while_the_model_loads_it_is_said_what_is_done(make_app: MakeApp):
    client = fakes.FakeClient(list(fakes.opening_events())[:2])
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        client.emit(PhaseChanged(phase="loading", detail="downloading it, 34 of 93 MB, 8 s left"))
        await sees(pilot, "\n downloading it, 34 of 93 MB, 8 s left")


def test_the_shell_is_told_how_to_go_on_with_a_run_that_is_kept():
    config = RunConfig(agent="./my cliff.py", run_dir="/runs/demo")
    state = initial_state(config)
    assert parting_text(config, state) == ""
    state = reduce(state, CheckpointSaved(at_s=1.0, update=3))
    again = "llamagym-tui './my cliff.py' --resume --run-dir /runs/demo"
    assert parting_text(config, state) == f"The run is kept. Resume with: {again}"


def test_the_shell_is_told_why_a_run_failed():
    config = RunConfig(agent="blackjack", run_dir="/runs/demo")
    assert parting_text(config, trainer_lost(initial_state(config), "It died.")) == "It died."


async def test_focus_comes_back_with_the_room(make_app: MakeApp):
    client = fakes.FakeClient(fakes.demo_run())
    app = make_app(client)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen.focused, TextArea))
        await pilot.resize_terminal(40, 10)
        await until(pilot, lambda: app.screen.focused is None)
        await pilot.resize_terminal(50, 12)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: isinstance(app.screen.focused, TextArea))
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)
        await until(pilot, lambda: isinstance(app.screen.focused, ConversationView))


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
async def test_dropped_episodes_stand_among_the_figures(make_app: MakeApp, size: tuple[int, int]):
    client = fakes.FakeClient()
    async with make_app(client).run_test(size=size) as pilot:
        await sees(pilot, "first update after")
        assert "dropped" not in shown(pilot)
        client.emit(fakes.counted([1.0], 9, dropped=3))
        await until(pilot, lambda: re.search("dropped +3|3 dropped", shown(pilot)))
        client.emit(*list(fakes.learning(4))[-1:])
        await sees(pilot, "update")
        assert re.search("dropped +3|3 dropped", shown(pilot))


async def test_a_flood_of_events_is_painted_twice_a_second_and_four_times_while_somebody_is_at_the_keys(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    # As they are for a person.
    monkeypatch.setattr("llamagym_tui.app.app.PAINT_S", PAINT_S)
    monkeypatch.setattr("llamagym_tui.app.app.PAINT_IDLE_S", PAINT_IDLE_S)
    monkeypatch.setattr("llamagym_tui.app.app.PAINT_FLOOD_S", PAINT_FLOOD_S)
    app = make_app(fakes.FakeClient(fakes.opening_events()))

    def wait_s(events: int) -> float:
        """Seconds to the next painting, where so many events came before the last one."""
        assert app.run_state is not None
        app._paint()
        for _ in range(events):
            app._take_in(app.run_state)
        app._paint()
        app._take_in(app.run_state)
        assert app._paint_timer is not None
        return app._paint_timer._interval

    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: app.run_state is not None)
        app._keyed_at = -math.inf
        assert wait_s(FLOOD - 1) == PAINT_IDLE_S
        assert wait_s(FLOOD) == PAINT_FLOOD_S
        assert wait_s(0) == PAINT_IDLE_S
        app._keyed_at = math.inf
        assert wait_s(FLOOD - 1) == PAINT_S
        assert wait_s(FLOOD) == PAINT_IDLE_S
