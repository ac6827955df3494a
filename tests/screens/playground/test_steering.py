"""Metrics, settings, evaluations, checkpoints and roll backs, by their keys, against a scripted trainer."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.widgets import Input, OptionList

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
    WarningRaised,
)
from llamagym_tui.screens.playground.evaluation import EvaluationDialog, interval_bar
from llamagym_tui.screens.playground.metrics import FigureList, MetricsScreen
from llamagym_tui.screens.playground.playground import PlaygroundScreen, allowed
from llamagym_tui.screens.playground.settings import SettingsDialog
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.state.returns import MeanReturn
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
        await pilot.press("m")
        await reaches(pilot, PlaygroundScreen)


async def test_the_metrics_follow_the_run(make_app: MakeApp):
    client = fakes.FakeClient()
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("m")
        await sees(pilot, "The line begins with the second update.")
        client.emit(*fakes.learning(12))
        await sees(pilot, "now  ")


async def test_s_asks_for_a_setting_that_is_pending_until_the_trainer_confirms_it(
    make_app: MakeApp,
):
    client = fakes.FakeClient(confirms=False)
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s")
        await reaches(pilot, SettingsDialog)
        settings = app.screen.query_one(OptionList)
        settings.highlighted = settings.get_option_index("ppo.lr")
        await sees(pilot, "ppo.lr takes a number above 0.")
        await pilot.press("enter", *"1e-4", "enter")
        await sees(pilot, "→ 0.0001, pending")
        assert client.sent == [ChangeSettings(changes={"ppo.lr": 0.0001})]
        await sees(pilot, "0.0005")
        client.emit(SettingsChanged(changes={"ppo.lr": 0.0001, "ppo.lr_final": 0.0001}))
        await sees(pilot, "0.0001      began with 0.0005")
        assert "pending" not in shown(pilot)
        await pilot.press("escape")
        await sees(pilot, "ppo.lr 0.0001: from now on")


async def test_settings_that_the_head_alone_has_no_use_for_are_folded_away_and_take_no_value(
    make_app: MakeApp,
):
    client = fakes.FakeClient()
    app = make_app(client, **fakes.HEAD_ALONE)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s")
        await reaches(pilot, SettingsDialog)
        await sees(pilot, "how far one update may move     0.02")
        settings = app.screen.query_one(OptionList)
        await pilot.press("end")
        # The seven live ones that steps on whole batches replace, and the longest reply, as known ones are chosen.
        await sees(pilot, "8 that this way of training does not use")
        assert "learning rate" not in shown(pilot)
        await pilot.press("enter")
        settings.highlighted = settings.get_option_index("ppo.lr")
        await sees(pilot, "Not used by this way of training.")
        await pilot.press("enter", *"1e-4", "enter")
        assert not isinstance(app.screen.focused, Input)
        assert client.sent == []
        settings.highlighted = settings.get_option_index("ppo.update_kl")
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
        await until(pilot, lambda: app.run_state.config.measured, "the measured setting")
        await pilot.press("s")
        await reaches(pilot, SettingsDialog)
        settings = app.screen.query_one(OptionList)
        settings.highlighted = settings.get_option_index("ppo.gamma")
        await sees(pilot, "0.99        measured")
        await sees(pilot, "measured: discount 0.99: episodes have 87 turns on average")
        client.emit(SettingsChanged(changes={"ppo.gamma": 0.9}))
        await sees(pilot, "0.9         began with 0.99")
        assert "measured: discount" not in shown(pilot)


async def test_a_wrong_value_is_told_while_it_is_typed_and_never_asked_for(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s", "enter", "x")
        await sees(pilot, "ppo.update_kl takes a number above 0, not 'x'.")
        await pilot.press("enter")
        assert isinstance(app.screen.focused, Input)
        await pilot.press("escape", "escape")
        await reaches(pilot, PlaygroundScreen)
        assert client.sent == []


async def test_a_refused_setting_waits_no_longer(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    async with rolling_out(make_app(client), SMALL) as pilot:
        await pilot.press("s", "down", "enter", *"0.5", "enter")
        await sees(pilot, "→ 0.5, pending")
        client.emit(WarningRaised(message="Nothing was changed: no reference.", refused="settings"))
        await until(pilot, lambda: "pending" not in shown(pilot))
        await pilot.press("escape")
        await sees(pilot, "Warning: Nothing was changed: no reference.")


def test_an_evaluation_is_drawn_with_its_interval_from_the_worst_baseline_to_the_best():
    known = {"optimal": 0.0, "expert": -0.1, "random": -0.31}
    # 31 steps of 0.01: the mean stands in cell 21, and 1.96 standard errors of 0.02 are four cells.
    drawn = interval_bar(MeanReturn(-0.10, 0.02, 400), known).plain
    assert drawn == f"\n  random −0.310 {'·' * 17}━━━━●━━━━{'·' * 6} 0 optimal"
    beyond = interval_bar(MeanReturn(0.5, 0.02, 400), known).plain
    assert beyond == f"\n  random −0.310 {'·' * 31}● 0 optimal"
    assert not interval_bar(MeanReturn(0.5, 0.02, 400), {"random": 0.0})


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
        await sees(pilot, "evaluating: 128 of 400 episodes")
        client.emit(EVALUATED, PhaseChanged(phase="rolling_out"))
        await sees(pilot, "Evaluation: mean return −0.100 ± 0.098 over 400 greedy episodes")
        await pilot.press("e")
        await sees(pilot, "−0.100, 95 % interval −0.198 … −0.002  400 greedy in 2.0 s")
        await sees(pilot, "−0.047 best")


async def test_x_cancels_the_evaluation_that_is_under_way(make_app: MakeApp):
    client = fakes.FakeClient(confirms=False)
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("e")
        await reaches(pilot, EvaluationDialog)
        await pilot.press("x")
        assert client.sent == [], "there is none to cancel"
        await pilot.press("enter")
        client.emit(PhaseChanged(phase="evaluating", detail="128 of 1000 episodes"))
        await sees(pilot, "playing: 128 of 1000 episodes · x cancels")
        await pilot.press("x", "x")
        wanted = [Evaluate(episodes=1000, greedy=True), CancelEvaluation()]
        await until(pilot, lambda: client.sent == wanted)
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
        await sees(pilot, "Pending: a checkpoint.")
        assert client.sent == [SaveCheckpoint()]
        client.emit(CheckpointSaved(update=3))
        await sees(pilot, "Checkpoint written, after update 3.")
        assert "Pending: a checkpoint" not in shown(pilot)


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
            await sees(pilot, "Pending: a roll back.")
            client.emit(RolledBack(update=2, reason="requested"))
            await sees(pilot, "rolled back: to update 2; requested")


def test_without_a_trainer_nothing_can_be_asked_for():
    state = initial_state(fakes.config(Path("/runs/demo")))
    for action in ("settings", "evaluate", "checkpoint", "roll_back"):
        assert allowed(action, state) is None
    assert allowed("metrics", state) is True
    told = replace(state, evaluations=(EVALUATED,))
    assert allowed("evaluate", told) is True, "results can be looked at"
