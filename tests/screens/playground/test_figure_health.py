"""Each figure has its line, and its range is that of the page on figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from llamagym_tui.screens.playground.metrics import figure_value, health, shown_figures
from llamagym_tui.settings import FIGURES
from tests import fakes


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("approx_kl", 0.01, "in its healthy range"),
        ("approx_kl", 0.021, "above its healthy range"),
        ("clip_fraction", 0.0, "in its healthy range"),
        ("explained_variance", -0.1, "below its healthy range"),
        ("parse_failure_rate", float("nan"), "not a number"),
        ("policy_loss", float("nan"), "not a number"),
        ("mean_return", -1.0, "no healthy range"),
    ],
)
def test_a_value_is_judged_in_words(field: str, value: float, words: str):
    assert health(field, replace(fakes.STATS, **{field: value})).words == words


def test_a_batch_in_which_no_episode_ended_has_no_return_and_nothing_is_wrong_with_it():
    stats = replace(fakes.STATS, episodes=0, mean_return=float("nan"))
    for field in ("mean_return",):
        assert health(field, stats) == (None, "no episode ended in this batch")
        assert figure_value(stats, field) == "none"
    diverged = replace(fakes.STATS, policy_loss=float("nan"))
    assert len(figure_value(diverged, "policy_loss")) < 12, "the judgement comes right after it"


def test_nothing_is_wrong_with_a_policy_that_is_not_trained_yet():
    stats = replace(fakes.STATS, lr=0.0, approx_kl=0.0, grad_norm=0.0)
    assert health("approx_kl", stats).ok is None
    assert health("grad_norm", stats).ok is None


def test_figures_that_need_a_setting_are_shown_with_it():
    without = fakes.config(Path("run"))
    known = set(shown_figures(without, {}))
    of_groups = {"flat_groups"}
    of_critic = {"value_loss", "explained_variance"}
    assert set(FIGURES) - known == of_groups
    assert known - set(shown_figures(without, {"ppo.learner": "rebn"})) == of_critic
    assert set(shown_figures(without, {"ppo.learner": "gigpo"})) == known - of_critic | of_groups
    compared = replace(without, ppo=replace(without.ppo, learner="rloo"))
    assert set(shown_figures(compared, {})) == known - of_critic | of_groups
    assert set(shown_figures(compared, {"ppo.learner": "ppo"})) == known
