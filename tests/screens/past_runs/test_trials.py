"""The table of a sweep's trials, in the app: scores over the seeds, the best marked, one opened."""

from __future__ import annotations

from math import inf

import pytest

from llamagym_tui.config import PPOConfig
from llamagym_tui.screens.past_runs.replay import ReplayScreen
from llamagym_tui.screens.past_runs.trials import TrialList, TrialsScreen
from tests import fakes
from tests.screens.past_runs.test_runs import END, SIZE, home, run, runs_screen
from tests.screens.steps import reaches, sees, shown, until


def trial(number: int, scores: list[float | None], **settings: object) -> None:
    """A run a score, of the seeds 1, 2, …; None: it was ended early."""
    for seed, score in enumerate(scores, 1):
        end = [END] if score is None else [fakes.evaluation(score, return_stderr=0.0), END]
        run(
            f"lr-{number:03}-seed{seed}",
            10 * number + seed,
            4 + number,
            *end,
            seed=seed,
            **settings,
        )


@pytest.fixture
def sweep() -> None:
    trial(0, [-0.2, -0.1])
    trial(1, [0.1, -0.1], ppo=PPOConfig(lr=1e-3))
    trial(2, [0.9, None], ppo=PPOConfig(lr=2e-3))
    run("another", 0, 12)


@pytest.mark.usefixtures("sweep")
async def test_a_sweeps_trials_stand_with_their_mean_over_seeds_the_best_first_and_marked():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        runs = await runs_screen(pilot)
        await until(pilot, lambda: all(row.summary for row in runs.rows))
        assert runs.chosen is not None
        assert runs.chosen.info.run_dir.name == "lr-002-seed2"
        await pilot.press("t")
        await sees(pilot, "TRIALS")
        trials = app.screen.query_one(TrialList).rows
        assert [(each.number, round(each.score, 9)) for each in trials] == [
            (1, 0.0),
            (0, -0.15),
            (2, -inf),  # a run that was ended early has no score, so its trial has none
        ]
        assert [each.settings for each in trials] == [
            "ppo.lr 0.001",
            "ppo.lr 0.0005",
            "ppo.lr 0.002",
        ]
        assert [line.strip()[0] for line in shown(pilot).splitlines() if " ppo.lr" in line][:3] == [
            "★",
            "−",
            "—",
        ]
        await pilot.press("s")
        assert [each.number for each in app.screen.query_one(TrialList).rows] == [0, 1, 2]
        await pilot.press("enter")
        await reaches(pilot, ReplayScreen)
        await pilot.press("escape")
        await reaches(pilot, TrialsScreen)
        await pilot.press("escape")
        assert app.screen.query(type(runs))


async def test_a_trial_that_was_left_in_the_middle_is_called_interrupted_and_counts_for_nothing():
    """Of trial 1 only the first seed was made, and all of it again as trial 3; trial 2 was ended early."""
    trial(0, [0.1, 0.3])
    trial(1, [0.9], ppo=PPOConfig(lr=0.00020936723934525855))
    trial(2, [None], ppo=PPOConfig(lr=2e-3))
    trial(3, [0.2, 0.2], ppo=PPOConfig(lr=0.00020936723934525855))
    trial(4, [None], ppo=PPOConfig(lr=3e-3))
    trial(5, [None, None], ppo=PPOConfig(lr=3e-3))
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        runs = await runs_screen(pilot)
        await until(pilot, lambda: all(row.summary for row in runs.rows))
        await pilot.press("t")
        await sees(pilot, "lr: 4, ★ the best")
        rows = {each.number: each for each in app.screen.query_one(TrialList).rows}
        assert {number for number, each in rows.items() if each.is_interrupted} == {1, 4}
        assert rows[1].score == -inf
        assert rows[1].settings == rows[3].settings == "ppo.lr 0.0002094"
        assert sum("interrupted " in line for line in shown(pilot).splitlines()) == 2


async def test_all_settings_of_the_chosen_trial_stand_below_the_table():
    trial(0, [0.1])
    trial(1, [0.3], ppo=PPOConfig(lr=1e-3, batch_size=256, epochs=3, gamma=0.98, clip_range=0.1))
    app = home()
    async with app.run_test(size=(80, 24)) as pilot:
        runs = await runs_screen(pilot)
        await until(pilot, lambda: all(row.summary for row in runs.rows))
        await pilot.press("t")
        whole = "trial 1: ppo.batch_size 256, ppo.clip_range 0.1, ppo.epochs 3, ppo.gamma 0.98, ppo.lr 0.001"
        await until(pilot, lambda: whole in " ".join(shown(pilot).split()))
        await pilot.press("down")
        await sees(pilot, "trial 0: ppo.batch_size")


@pytest.mark.usefixtures("sweep")
async def test_a_run_of_no_sweep_has_no_trials():
    app = home()
    async with app.run_test(size=SIZE) as pilot:
        await runs_screen(pilot)
        await pilot.press("end")
        await until(pilot, lambda: "another" in shown(pilot))
        await pilot.press("t")
        assert not isinstance(app.screen, TrialsScreen)
