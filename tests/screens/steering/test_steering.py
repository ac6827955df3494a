"""Metrics, settings, evaluations, checkpoints and roll backs, by their keys, against a scripted trainer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.app import App
from textual.events import Key
from textual.widgets import Input, OptionList

from llamagym_tui.config import FIGURES, LIVE
from llamagym_tui.protocol.commands import (
    CancelEvaluation,
    ChangeSettings,
    Evaluate,
    RollBack,
    SaveCheckpoint,
)
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    EvaluationCancelled,
    PhaseChanged,
    RolledBack,
    SettingsChanged,
    SettingsMeasured,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.returns import MeanReturn
from llamagym_tui.screens.metrics.evaluation import EvaluationDialog, interval
from llamagym_tui.screens.metrics.figure_wall import FigureChart, figure_value, samples
from llamagym_tui.screens.metrics.metrics import FigureList, MetricsScreen
from llamagym_tui.screens.playground.actions import allowed
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.steering.settings import SettingsDialog
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import reaches, rolling_out, sees, shown, until

SMALL, LARGE = (80, 24), (160, 45)
EVALUATED = fakes.evaluation(-0.1, episodes=400, elapsed_s=2.0)


async def test_m_charts_a_figure_and_says_what_it_means_and_whether_it_is_healthy(
    make_app: MakeApp,
):
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("m")
        await reaches(pilot, MetricsScreen)
        await sees(pilot, "mean return")
        screen = shown(pilot)
        assert screen.index("What an episode earns on average") < screen.index("┤"), "first of all"
        figures = pilot.app.screen.query_one(FigureList)
        figures.highlighted = figures.get_option_index("approx_kl")
        await sees(pilot, "KL of the update")
        await sees(pilot, "0.004  in its healthy range")
        await sees(pilot, "How far the last update moved the policy")
        assert "20,480 episodes" in shown(pilot)
        await pilot.press("m")
        await reaches(pilot, PlaygroundScreen)


async def test_figures_stand_in_four_groups_and_are_found_by_words(make_app: MakeApp):
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("m")
        await sees(pilot, "learning")
        figures = app.screen.query_one(FigureList)
        titles = [str(option.prompt) for option in figures.options if option.disabled]
        assert titles == ["learning", "policy", "critic", "speed"]
        await pilot.press("slash", *"undecided action")
        await until(
            pilot,
            lambda: [each.id for each in figures.options][1:] == ["action_entropy", "entropy_coef"],
        )
        await sees(pilot, "action entropy")
        await pilot.press("enter", "down")
        await sees(pilot, "How strongly the policy is kept undecided about")
        await pilot.press("escape")
        await until(pilot, lambda: figures.option_count > 20)
        assert isinstance(app.screen, MetricsScreen), "the first escape ends the search"
        assert app.screen.query_one(FigureChart).field == "entropy_coef"
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)


async def test_updates_without_a_new_episode_are_charted(make_app: MakeApp):
    stats = replace(fakes.STATS, mean_return=float("nan"), return_std=float("nan"), episodes=0)
    updates = [UpdateFinished(update=number, episodes=16, stats=stats) for number in (1, 2, 3)]
    app = make_app(fakes.FakeClient([*fakes.opening_events(), *updates]))
    async with app.run_test(size=LARGE) as pilot:
        await sees(pilot, "ratio error")
        await pilot.press("m")
        await sees(pilot, "none  no episode ended in this batch")
        assert "not a number" not in shown(pilot)


async def test_a_figure_that_is_no_number_stays_apart_from_its_judgement(make_app: MakeApp):
    stats = replace(fakes.STATS, approx_kl=float("nan"))
    app = make_app(
        fakes.FakeClient(
            [*fakes.opening_events(), UpdateFinished(update=1, episodes=16, stats=stats)]
        )
    )
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("m")
        await sees(pilot, "KL          no number out")


async def test_every_figure_can_be_reached_by_keys_in_a_small_terminal(make_app: MakeApp):
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("m", "end")
        await sees(pilot, FIGURES["update_s"].title)


async def test_a_large_terminal_charts_several_figures(make_app: MakeApp):
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=LARGE) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("m")
        for field in ("mean_return", "entropy", "clip_fraction", "explained_variance", "grad_norm"):
            value = figure_value(app.run_state.stats, field)
            await sees(pilot, f"{FIGURES[field].short}  {value}  ")


async def test_the_metrics_follow_the_run(make_app: MakeApp):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("m")
        await sees(pilot, "The line begins with the second update.")
        client.emit(*fakes.learning(12))
        await sees(pilot, "1,536 episodes")


async def test_s_asks_for_a_setting_that_is_pending_until_the_trainer_confirms_it(
    make_app: MakeApp,
):
    client = fakes.FakeClient(confirms=False)
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s")
        await reaches(pilot, SettingsDialog)
        await sees(pilot, "ppo.lr takes a number above 0.")
        await pilot.press("enter", *"1e-4", "enter")
        await sees(pilot, "→ 0.0001, pending")
        assert client.sent == [ChangeSettings(changes={"ppo.lr": 0.0001})]
        await sees(pilot, "0.0005")
        client.emit(SettingsChanged(changes={"ppo.lr": 0.0001, "ppo.lr_final": 0.0001}))
        await sees(pilot, "0.0001        changed")
        assert "pending" not in shown(pilot)
        await pilot.press("escape")
        await sees(pilot, "ppo.lr 0.0001: from now on")


async def test_a_setting_that_the_head_alone_has_no_use_for_says_so_and_takes_no_value(
    make_app: MakeApp,
):
    client = fakes.FakeClient()
    app = make_app(client, **fakes.HEAD_ALONE)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s")
        await reaches(pilot, SettingsDialog)
        await sees(pilot, "Not used: the head alone is trained")
        assert re.search("learning rate +— +not used", shown(pilot))
        await pilot.press("enter", *"1e-4", "enter")
        assert not isinstance(app.screen.focused, Input)
        assert client.sent == []
        app.screen.query_one(OptionList).highlighted = list(LIVE).index("ppo.update_kl")
        await sees(pilot, "ppo.update_kl takes")
        await pilot.press("enter", *"0.01", "enter")
        await until(pilot, lambda: client.sent)
        assert "ppo.update_kl" in client.sent[0].changes


async def test_a_setting_that_the_first_batch_decided_is_marked_with_its_reason_until_it_is_changed(
    make_app: MakeApp,
):
    client = fakes.FakeClient(confirms=False)
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        reasons = {"ppo.gamma": "discount 0.99: episodes have 87 turns on average"}
        client.emit(SettingsMeasured(values={"ppo.gamma": 0.99}, reasons=reasons))
        await sees(pilot, "Measured in the first batch: discount 0.99")
        await pilot.press("s")
        await reaches(pilot, SettingsDialog)
        app.screen.query_one(OptionList).highlighted = list(LIVE).index("ppo.gamma")
        await sees(pilot, "0.99          measured")
        await sees(pilot, "measured: discount 0.99: episodes have 87 turns on average")
        client.emit(SettingsChanged(changes={"ppo.gamma": 0.9}))
        await sees(pilot, "0.9           changed")
        assert "measured: discount" not in shown(pilot)


async def test_a_wrong_value_is_told_while_it_is_typed_and_never_asked_for(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s", "enter", "x")
        await sees(pilot, "ppo.lr takes a number above 0, not 'x'.")
        await pilot.press("enter")
        assert isinstance(app.screen.focused, Input)
        await pilot.press("escape", "escape")
        await reaches(pilot, PlaygroundScreen)
        assert client.sent == []


async def test_an_emptied_value_is_told_while_it_is_edited(make_app: MakeApp):
    async with rolling_out(make_app(), SMALL) as pilot:
        await pilot.press("s", "enter", "home", "shift+end", "backspace")
        await sees(pilot, "ppo.lr takes a number above 0, not ''.")
        await pilot.press("escape")
        await sees(pilot, "enter edits it")


async def test_a_value_that_was_not_requested_is_there_again(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s", "down", "enter", *"0.25", "escape")
        await sees(pilot, "the typed value is kept, not requested")
        await pilot.press("up", "escape")
        await reaches(pilot, PlaygroundScreen)
        await pilot.press("s")
        await reaches(pilot, SettingsDialog)
        assert app.screen.query_one(Input).value == ""
        await pilot.press("down", "enter", "enter")
        await until(pilot, lambda: client.sent)
        [command] = client.sent
        assert list(command.changes.values()) == [0.25]  # type: ignore[union-attr]


async def test_a_refused_setting_waits_no_longer(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("s", "down", "enter", *"0.5", "enter")
        await sees(pilot, "→ 0.5, pending")
        client.emit(WarningRaised(message="Nothing was changed: no reference.", refused="settings"))
        await until(pilot, lambda: "pending" not in shown(pilot))
        await pilot.press("escape")
        await sees(pilot, "Warning: Nothing was changed: no reference.")


async def test_a_setting_can_be_chosen_by_mouse(make_app: MakeApp):
    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s")
        await reaches(pilot, SettingsDialog)
        await pilot.click(OptionList, offset=(3, 4))
        await sees(pilot, "ppo.kl_target takes a number above 0 or none.")
        await until(pilot, lambda: isinstance(app.screen.focused, Input))


async def test_e_evaluates_tells_the_progress_and_the_confidence_interval(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("e")
        await reaches(pilot, EvaluationDialog)
        await pilot.press("home", "shift+end", *"400", "enter")
        await sees(pilot, "requested; it starts when the current step ends")
        assert client.sent == [Evaluate(episodes=400, greedy=True)]
        await pilot.press("enter")
        assert len(client.sent) == 1, "one at a time"
        client.emit(PhaseChanged(phase="evaluating", detail="128 of 400 episodes"))
        await sees(pilot, "playing: 128 of 400 episodes")
        await pilot.press("escape")
        await sees(pilot, "Evaluating: 128 of 400 episodes. The run goes on afterwards.")
        client.emit(EVALUATED, PhaseChanged(phase="rolling_out"))
        await sees(pilot, "Evaluation: mean return −0.100 ± 0.098 over 400 greedy episodes; 95 %")
        await pilot.press("e")
        await sees(pilot, "−0.100, 95 % interval −0.198 … −0.002  400 greedy in 2.0 s")
        await sees(pilot, "optimal −0.047")


async def test_whether_it_is_greedy_is_told_without_colour(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("e")
        await sees(pilot, "▐X▌ greedy")
        await pilot.press("tab", "space")
        await sees(pilot, "▐ ▌ greedy")
        await pilot.press("shift+tab", "enter")
        await until(pilot, lambda: client.sent)
        assert client.sent == [Evaluate(episodes=1000, greedy=False)]


async def test_e_again_cancels_the_evaluation_that_is_under_way(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("e")
        await reaches(pilot, EvaluationDialog)
        await pilot.press("e")
        assert client.sent == [], "there is none to cancel"
        await pilot.press("enter")
        client.emit(PhaseChanged(phase="evaluating", detail="128 of 1000 episodes"))
        await sees(pilot, "playing: 128 of 1000 episodes · e cancels")
        await pilot.press("e", "e")
        await sees(pilot, "cancelled; it ends between two steps")
        assert client.sent == [Evaluate(episodes=1000, greedy=True), CancelEvaluation()]
        client.emit(
            EvaluationCancelled(played=130, episodes=1000), PhaseChanged(phase="rolling_out")
        )
        await sees(pilot, "enter begins")
        await pilot.press("escape")
        await sees(pilot, "The evaluation was cancelled after 130 of 1,000 episodes.")


async def test_episodes_that_are_no_number_are_told_at_once(make_app: MakeApp):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("e", "home", "shift+end", "0")
        await sees(pilot, "Episodes are a whole number from 1 to 1,000,000.")
        await pilot.press("enter")
        assert client.sent == []


async def test_c_writes_a_checkpoint_and_waits_for_it(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("c", "c")
        await sees(pilot, "A checkpoint is requested")
        assert client.sent == [SaveCheckpoint()]
        client.emit(CheckpointSaved(update=3))
        await sees(pilot, "Checkpoint written, after update 3.")
        assert "is requested" not in shown(pilot)


@pytest.mark.parametrize(("answer", "asked"), [("y", [RollBack()]), ("n", [])])
async def test_a_question_is_answered_by_a_click_too(
    make_app: MakeApp, answer: str, asked: list[RollBack]
):
    client = fakes.FakeClient(confirms=False)
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("ctrl+r")
        await reaches(pilot, ConfirmDialog)
        await sees(pilot, " n  stay")
        rows = shown(pilot).splitlines()
        y, row = next((y, row) for y, row in enumerate(rows) if " n  stay" in row)
        await pilot.click(offset=(row.index(f" {answer}  ") + 1, y))
        await reaches(pilot, PlaygroundScreen)
        await pilot.pause()
        assert client.sent == asked


@pytest.mark.parametrize(("answer", "asked"), [("y", [RollBack()]), ("n", [])])
async def test_ctrl_r_rolls_back_if_it_is_meant(
    make_app: MakeApp, answer: str, asked: list[RollBack]
):
    client = fakes.FakeClient(confirms=False)
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("ctrl+r")
        await reaches(pilot, ConfirmDialog)
        await pilot.press(answer)
        await reaches(pilot, PlaygroundScreen)
        await pilot.pause()
        assert client.sent == asked
        if asked:
            await sees(pilot, "A roll back is requested")
            client.emit(RolledBack(update=2, reason="requested"))
            await sees(pilot, "rolled back: to update 2; requested")


async def test_a_question_shows_its_own_keys_in_the_bottom_row_and_enter_means_yes(
    make_app: MakeApp,
):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("ctrl+r")
        await sees(pilot, " n  stay")
        await until(
            pilot,
            lambda: shown(pilot).splitlines()[-1].strip() == "y ⏎ Yes  n esc No",
            "the dialog's keys",
        )
        await pilot.press("enter")
        await until(pilot, lambda: client.sent == [RollBack()])


def test_the_band_of_a_batch_is_half_a_confidence_interval():
    stats = replace(fakes.STATS, return_std=1.0, episodes=5)
    state = reduce(
        initial_state(fakes.config(Path("/runs/demo"))),
        UpdateFinished(update=1, episodes=5, stats=stats),
    )
    # `return_std` divides by 5, s by 4: s² = 5 / 4, and the error is √(s² / 5) = 1 / 2.
    assert [half for *_, half in samples(state, "mean_return")] == pytest.approx([1.96 / 2])


def test_without_a_trainer_nothing_can_be_asked_for():
    state = initial_state(fakes.config(Path("/runs/demo")))
    for action in ("settings", "evaluate", "checkpoint", "roll_back"):
        assert allowed(action, state) is None
    assert allowed("metrics", state) is True
    told = replace(state, evaluations=(EVALUATED,))
    assert allowed("evaluate", told) is True, "results can be looked at"


def test_the_interval_by_hand():
    assert interval(MeanReturn(0.5, 0.1, 100)) == "+0.50, 95 % interval +0.30 … +0.70"
    assert interval(MeanReturn(-1.0, 0.0, 1)) == "−1"


async def test_what_is_typed_in_one_burst_is_taken_in_order(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s")
        await reaches(pilot, SettingsDialog)
        burst(app, "down", "down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen.focused, Input))
        burst(app, "0", "full_stop", "1", "enter")
        await until(pilot, lambda: client.sent == [ChangeSettings(changes={"ppo.clip_range": 0.1})])
        await pilot.press("escape", "e")
        await reaches(pilot, EvaluationDialog)
        burst(app, "home", "shift+end", "3", "0", "enter")
        await until(pilot, lambda: client.sent[1:] == [Evaluate(episodes=30, greedy=True)])


def burst(app: App[None], *keys: str) -> None:
    """Keys that come at once, as from a paste or a slow connection."""
    for key in keys:
        app.post_message(Key(key, {"full_stop": "."}.get(key, key if len(key) == 1 else None)))


async def test_what_is_told_while_a_screen_opens_is_shown_once_it_is_there(make_app: MakeApp):
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=(120, 34)) as pilot:
        await sees(pilot, "episode 20,480")
        app.push_screen(MetricsScreen(app.run_state))
        app._take_in(reduce(app.run_state, fakes.counted([1.0], 30_000)))
        app._paint()  # before anything of the screen is mounted
        await sees(pilot, "episode 30,000")
        assert isinstance(app.screen, MetricsScreen)
