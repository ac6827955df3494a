"""The collapse monitor: what it says of hand-made runs, and that it says nothing of a healthy one.

`tests/recorded/healthy_blackjack.jsonl` has the figures and some replies of each update of
``llamagym-tui train blackjack --minutes 4 --seed 3 --threads 1``; `collapsing_blackjack.jsonl` those of the run in
`tests/e2e/test_collapse.py`, whose learning rate is 60 times as large from the eleventh update on.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llamagym_tui.protocol.events import UpdateStats
from llamagym_tui.trainer.collapse import CollapseMonitor, Verdict, repeated_share
from tests import fakes

RECORDED = Path(__file__).parents[1] / "recorded"
STEADY: dict[str, Any] = {
    "mean_return": -0.1, "return_std": 1.0, "episodes": 1000, "entropy": 0.2, "action_entropy": 0.5, "grad_norm": 1.0,
    "parse_failure_rate": 0.0, "skipped_steps": 0, "policy_loss": 0.0, "value_loss": 0.4, "approx_kl": 0.01,
}  # fmt: skip
ROUGH = "!" * 32


def figures(**changes: Any) -> UpdateStats:
    return msgspec.structs.replace(fakes.STATS, **{**STEADY, **changes})


def monitor_after(updates: int, *, reply: str = '{"action": 0}', **changes: Any) -> CollapseMonitor:
    monitor = CollapseMonitor()
    for _ in range(updates):
        said(monitor, figures(**changes), reply)
    return monitor


def said(monitor: CollapseMonitor, stats: UpdateStats, reply: str = '{"action": 0}') -> Verdict:
    for _ in range(4):
        monitor.add_reply(reply)
    return monitor.judge(stats)


def judged(monitor: CollapseMonitor, recorded: str) -> Iterator[tuple[Verdict, bool]]:
    """What is said of each update of a recorded run, and whether its policy counts as good."""
    for line in (RECORDED / recorded).read_text().splitlines():
        update = json.loads(line)
        for reply in update["replies"]:
            monitor.add_reply(reply)
        yield monitor.judge(figures(**update["stats"])), monitor.is_good


def last_of(
    monitor: CollapseMonitor, updates: int, reply: str = '{"action": 0}', **changes: Any
) -> Verdict:
    """What is said after as many updates with such figures."""
    return [said(monitor, figures(**changes), reply) for _ in range(updates)][-1]


def test_a_healthy_run_is_quiet_and_good_from_its_beginning_to_its_end() -> None:
    found = list(judged(CollapseMonitor(), "healthy_blackjack.jsonl"))
    assert len(found) == 48
    assert set(found) == {(Verdict(), True)}


def test_a_run_at_far_too_high_a_rate_is_noticed_within_two_updates() -> None:
    found = [
        (verdict.level, good)
        for verdict, good in judged(CollapseMonitor(), "collapsing_blackjack.jsonl")
    ]
    assert found == [("quiet", True)] * 11 + [("warning", False), ("collapsed", False)]


def test_the_same_run_collapses_once_its_replies_and_returns_do() -> None:
    monitor = CollapseMonitor()
    list(judged(monitor, "healthy_blackjack.jsonl"))
    assert last_of(monitor, 3, mean_return=-0.9, parse_failure_rate=0.2).level == "collapsed"


def test_a_lake_that_is_crossed_every_time_is_healthy_without_any_spread_or_entropy() -> None:
    monitor = CollapseMonitor()
    for success in (0.0, 0.1, 0.3, 0.6, 0.8, 0.9, 0.97):
        spread = math.sqrt(success * (1 - success))
        assert (
            said(monitor, figures(mean_return=success, return_std=spread, episodes=150)).level
            == "quiet"
        )
    solved = {
        "mean_return": 1.0,
        "return_std": 0.0,
        "episodes": 170,
        "action_entropy": 0.004,
        "grad_norm": 1e-4,
    }
    assert last_of(monitor, 30, **solved) == Verdict()
    # A hole now and then makes a gradient again, far above the last ones; it was larger once.
    slip = solved | {"mean_return": 0.98, "return_std": 0.14, "grad_norm": 0.8}
    assert said(monitor, figures(**slip)) == Verdict()
    assert monitor.is_good


def test_a_task_that_nothing_was_ever_won_at_has_nothing_to_fall_from() -> None:
    assert (
        last_of(CollapseMonitor(), 20, mean_return=0.0, return_std=0.0, action_entropy=0.0)
        == Verdict()
    )


def test_the_same_action_in_all_states_is_noticed_before_returns_fall_and_is_a_collapse_with_them() -> (
    None
):
    monitor = monitor_after(10, action_information=0.3)
    blind = {"action_information": 0.02}
    verdict = last_of(monitor, 3, **blind)
    assert (verdict.level, verdict.signs) == ("warning", ("sameness",))
    assert "whatever the state is (0.020 nats of information, 0.30 before)" in verdict.reason
    assert not monitor.is_good
    assert last_of(monitor, 6, mean_return=-0.9, **blind).level == "collapsed"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # one action is right in all states, and returns are better for it
        ({"action_information": 0.3}, {"action_information": 0.0, "mean_return": 0.0}),
        ({"action_information": 0.3}, {"action_information": 0.05}),
        # a world of one state
        ({"action_information": 0.0}, {"action_information": 0.0}),
        ({"action_information": 0.04}, {"action_information": 0.0}),
    ],
)
def test_doing_the_same_everywhere_is_no_sign_where_it_pays_or_never_was_otherwise(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    monitor = monitor_after(10, **before)
    assert {last_of(monitor, 1, **after).level for _ in range(20)} == {"quiet"}


def test_a_fall_is_measured_in_standard_errors_of_both_means() -> None:
    # Ten updates of 1,000 episodes, standard deviation 1: six errors of the difference are 6 sqrt(2/10,000) = 0.0849.
    steady = {"mean_return": -0.125}
    assert last_of(monitor_after(10, **steady), 10, mean_return=-0.125 - 0.078125) == Verdict()
    verdict = last_of(monitor_after(10, **steady), 10, mean_return=-0.125 - 0.09375)
    assert (verdict.level, verdict.signs) == ("warning", ("fall",))
    assert "from -0.125 to -0.219" in verdict.reason
    # Where episodes share seeds so that they say half as much, six errors are 0.12.
    shared = {"design_effect": 2.0}
    fallen = last_of(monitor_after(10, **steady, **shared), 10, mean_return=-0.21875, **shared)
    assert fallen == Verdict()


def test_a_policy_that_fell_is_not_good_long_before_it_is_warned_of() -> None:
    # Two standard errors are 0.028.
    slightly, clearly = monitor_after(10), monitor_after(10)
    last_of(slightly, 10, mean_return=-0.12)
    assert last_of(clearly, 10, mean_return=-0.14) == Verdict()
    assert (slightly.is_good, clearly.is_good) == (True, False)


@pytest.mark.parametrize(
    ("changes", "sign"),
    [
        ({"action_entropy": 0.04}, "exploration"),
        ({"return_std": 0.05}, "spread"),
        ({"parse_failure_rate": 0.1}, "parse failures"),
        ({"skipped_steps": 1}, "skipped steps"),
    ],
)
def test_a_fall_in_company_is_a_collapse(changes: dict[str, Any], sign: str) -> None:
    verdict = last_of(monitor_after(10), 10, mean_return=-0.3, **changes)
    assert (verdict.level, verdict.signs) == ("collapsed", ("fall", sign))


def test_little_exploration_and_spread_are_no_sign_without_a_fall() -> None:
    assert last_of(monitor_after(10), 10, action_entropy=0.001, return_std=0.01) == Verdict()


def test_parse_failures_are_compared_with_the_lowest_of_the_run() -> None:
    monitor = CollapseMonitor()
    for rate in (0.9, 0.6, 0.3, 0.1, 0.02):
        assert said(monitor, figures(parse_failure_rate=rate)) == Verdict()
    assert last_of(monitor, 3, parse_failure_rate=0.02) == Verdict()
    assert last_of(monitor, 3, parse_failure_rate=0.06) == Verdict()
    assert last_of(monitor, 3, parse_failure_rate=0.09).signs == ("parse failures",)
    assert last_of(monitor, 3, parse_failure_rate=0.40).level == "collapsed"


def test_entropy_may_rise_as_far_as_actions_explain_it() -> None:
    assert last_of(monitor_after(5), 3, entropy=0.69) == Verdict()
    assert last_of(monitor_after(5), 3, entropy=0.75).signs == ("entropy",)
    assert last_of(monitor_after(5), 3, entropy=0.75, action_entropy=0.69) == Verdict()
    # From a start of 2 nats, half a nat is nothing.
    assert last_of(monitor_after(5, entropy=2.0), 3, entropy=3.0) == Verdict()


def test_a_format_that_dissolves_in_two_ways_at_once_is_a_collapse() -> None:
    verdict = last_of(monitor_after(5), 3, entropy=1.7, parse_failure_rate=0.1)
    assert (verdict.level, verdict.signs) == ("collapsed", ("parse failures", "entropy"))


def test_replies_of_one_sign_are_a_collapse_and_those_of_the_start_are_the_measure() -> None:
    verdict = last_of(monitor_after(5), 3, reply=ROUGH)
    assert (verdict.level, verdict.signs) == ("collapsed", ("repetition",))
    assert "97% of their trigrams, 0% at the start" in verdict.reason
    assert last_of(monitor_after(5, reply=ROUGH), 3, reply=ROUGH) == Verdict()


def test_few_replies_are_no_evidence() -> None:
    monitor = monitor_after(5)
    for _ in range(3):
        monitor.add_reply(ROUGH)
        monitor.add_reply(ROUGH)
        assert monitor.judge(figures()) == Verdict()


@pytest.mark.parametrize(
    ("reply", "share"),
    [
        ("", 0.0),
        ("hit", 0.0),
        ('{"action": 0}', 0.0),
        ("!!!!!", 2 / 3),  # three trigrams, all the same
        ("a b c a b c", 1 / 4),  # abc, bca, cab, abc
        ("stick stick", 0.0),
    ],
)
def test_the_share_of_repeated_trigrams(reply: str, share: float) -> None:
    assert repeated_share(reply) == pytest.approx(share)


def test_a_gradient_beyond_all_before_is_a_sign_once() -> None:
    monitor = monitor_after(5)
    assert said(monitor, figures(grad_norm=9.9)) == Verdict()
    assert said(monitor, figures(grad_norm=100.0)).signs == ("gradient",)
    assert said(monitor, figures(grad_norm=100.0)) == Verdict()


def test_no_gradient_while_the_critic_warms_up_is_no_measure_for_those_after() -> None:
    monitor = monitor_after(5, grad_norm=0.0)
    assert said(monitor, figures(grad_norm=3.0)) == Verdict()


def test_an_update_whose_episodes_a_person_acted_in_says_nothing_of_the_return() -> None:
    unknown = {"mean_return": math.nan, "return_std": math.nan}
    monitor = monitor_after(9)
    assert last_of(monitor, 12, **unknown) == Verdict()
    assert monitor.best.mean == STEADY["mean_return"]
    assert monitor.is_good
    assert last_of(monitor_after(9, **unknown), 5) == Verdict()


@pytest.mark.parametrize(
    "changes", [{"policy_loss": math.nan}, {"approx_kl": math.inf}, {"skipped_steps": 8}]
)
def test_numbers_that_are_none_are_warned_of_once_and_are_a_collapse_the_second_time(
    changes: dict[str, Any],
) -> None:
    changes = {"grad_norm": 0.0, **changes}
    monitor = monitor_after(3)
    assert said(monitor, figures(**changes)).level == "warning"
    assert said(monitor, figures(**changes)).level == "collapsed"
    monitor = monitor_after(3)
    assert [said(monitor, figures(**c)).level for c in (changes, {}, changes)] == [
        "warning",
        "quiet",
        "warning",
    ]


def test_after_a_roll_back_the_best_is_remembered_and_the_fall_is_not() -> None:
    monitor = monitor_after(10)
    assert last_of(monitor, 10, mean_return=-0.4, action_entropy=0.0).level == "collapsed"
    monitor.rolled_back()
    assert said(monitor, figures()) == Verdict()
    assert last_of(monitor, 8, mean_return=-0.4, action_entropy=0.0).level == "collapsed"


def test_after_a_roll_back_broken_numbers_are_counted_from_the_first() -> None:
    monitor = monitor_after(3)
    assert said(monitor, figures(policy_loss=math.nan)).level == "warning"
    monitor.rolled_back()
    assert said(monitor, figures(policy_loss=math.nan)) == Verdict(
        "warning", ("broken",), "Losses are not finite in this update."
    )


def test_the_recent_mean_return_is_of_ten_updates_and_a_share_of_three() -> None:
    # One update of ten is still at -0.1, nine are at -0.3; one of three has 30 % parse failures.
    assert "fell from -0.100 to -0.280" in last_of(monitor_after(10), 9, mean_return=-0.3).reason
    assert (
        "10% of replies name no action, 0% before"
        in said(monitor_after(5), figures(parse_failure_rate=0.3)).reason
    )


def test_the_start_is_of_three_updates() -> None:
    monitor = CollapseMonitor()
    for entropy in (0.1, 0.2, 0.6, 0.2, 0.2):
        assert said(monitor, figures(entropy=entropy)) == Verdict()
    assert "rose from 0.30 to 1.20 nats" in last_of(monitor, 3, entropy=1.2).reason


def test_replies_that_repeat_themselves_somewhat_more_than_at_the_start_are_a_warning() -> None:
    quarter, half = "a b c a b c", "a b c a b c a b c a"  # shares of 1/4 and 5/8
    verdict = last_of(monitor_after(3, reply=quarter), 3, reply=half)
    assert (verdict.level, verdict.signs) == ("warning", ("repetition",))
    assert "62% of their trigrams, 25% at the start" in verdict.reason


@pytest.mark.slow
def test_two_hundred_thousand_updates_of_a_policy_that_does_not_change_are_quiet() -> None:
    chance = random.Random(0)
    for _ in range(200):
        monitor = CollapseMonitor()
        for _ in range(1000):
            mean = chance.gauss(-0.1, 1 / math.sqrt(1000))
            assert monitor.judge(figures(mean_return=mean)).level == "quiet"
