"""The collapse monitor: what it says of hand-made and recorded runs, and that it says nothing of a healthy one.

`tests/recorded/healthy_blackjack.jsonl` has the figures of each update of a run of Blackjack;
`collapsing_blackjack.jsonl` those of a run whose learning rate is 60 times as large from the eleventh update on.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llamagym_tui.protocol.events import UpdateStats
from llamagym_tui.trainer.collapse import CollapseMonitor, Verdict
from tests import fakes

RECORDED = Path(__file__).parents[1] / "recorded"
STEADY: dict[str, Any] = {
    "mean_return": -0.1, "return_std": 1.0, "episodes": 1000, "entropy": 0.2, "grad_norm": 1.0,
    "parse_failure_rate": 0.0, "skipped_steps": 0, "policy_loss": 0.0, "value_loss": 0.4, "approx_kl": 0.01,
}  # fmt: skip


def figures(**changes: Any) -> UpdateStats:
    return msgspec.structs.replace(fakes.STATS, **{**STEADY, **changes})


def monitor_after(updates: int, **changes: Any) -> CollapseMonitor:
    monitor = CollapseMonitor()
    for _ in range(updates):
        monitor.judge(figures(**changes))
    return monitor


def last_of(monitor: CollapseMonitor, updates: int, **changes: Any) -> Verdict:
    """What is said after as many updates with such figures."""
    return [monitor.judge(figures(**changes)) for _ in range(updates)][-1]


def recorded(name: str) -> list[UpdateStats]:
    lines = (RECORDED / name).read_text().splitlines()
    return [figures(**json.loads(line)["stats"]) for line in lines]


def test_a_healthy_run_is_quiet_and_good_to_its_end() -> None:
    monitor = CollapseMonitor()
    for stats in recorded("healthy_blackjack.jsonl"):
        assert monitor.judge(stats) == Verdict()
        assert monitor.is_good


def test_a_run_whose_replies_and_returns_fall_is_warned_of() -> None:
    monitor = CollapseMonitor()
    levels = [monitor.judge(stats).level for stats in recorded("collapsing_blackjack.jsonl")]
    assert set(levels[:10]) == {"quiet"}
    assert levels[-1] == "warning"


def test_a_fall_is_measured_in_standard_errors_of_both_means() -> None:
    # Ten updates of 1,000 episodes, standard deviation 1: six errors of the difference are 6 sqrt(2/10,000) = 0.0849.
    steady = {"mean_return": -0.125}
    assert last_of(monitor_after(10, **steady), 10, mean_return=-0.125 - 0.078125) == Verdict()
    verdict = last_of(monitor_after(10, **steady), 10, mean_return=-0.125 - 0.09375)
    assert verdict.reason == "The mean return fell from -0.125 to -0.219."
    # Where episodes share seeds so that they say half as much, six errors are 0.12.
    shared = {"design_effect": 2.0}
    fallen = last_of(monitor_after(10, **steady, **shared), 10, mean_return=-0.21875, **shared)
    assert fallen == Verdict()


def test_a_policy_that_fell_is_not_good_long_before_it_is_warned_of() -> None:
    # Two standard errors are 0.028.
    slightly = monitor_after(10)
    clearly = monitor_after(10)
    last_of(slightly, 10, mean_return=-0.12)
    assert last_of(clearly, 10, mean_return=-0.14) == Verdict()
    assert (slightly.is_good, clearly.is_good) == (True, False)


def test_one_failure_after_many_equal_returns_is_no_fall() -> None:
    monitor = monitor_after(1, mean_return=0.5, return_std=0.5)
    assert last_of(monitor, 20, mean_return=1.0, return_std=0.0) == Verdict()
    assert last_of(monitor, 1, mean_return=0.99, return_std=0.1) == Verdict()


def test_parse_failures_are_compared_with_the_lowest_of_the_run() -> None:
    monitor = CollapseMonitor()
    for rate in (0.9, 0.6, 0.3, 0.1, 0.02):
        assert monitor.judge(figures(parse_failure_rate=rate)) == Verdict()
    assert last_of(monitor, 3, parse_failure_rate=0.02) == Verdict()
    assert last_of(monitor, 3, parse_failure_rate=0.06) == Verdict()
    verdict = last_of(monitor, 3, parse_failure_rate=0.09)
    assert verdict == Verdict("warning", "9% of replies name no action, 2% before.")
    assert last_of(monitor, 3, parse_failure_rate=0.40).level == "collapsed"


def test_a_fall_with_parse_failures_is_a_collapse() -> None:
    verdict = last_of(monitor_after(10), 10, mean_return=-0.3, parse_failure_rate=0.1)
    assert verdict.level == "collapsed"
    assert "the mean return fell from -0.100 to -0.300" in verdict.reason


@pytest.mark.parametrize(
    "changes",
    [{"policy_loss": math.nan}, {"value_loss": math.inf}, {"skipped_steps": 3, "grad_norm": 0.0}],
)
def test_broken_numbers_are_a_collapse_that_is_reported_once(changes: dict[str, Any]) -> None:
    monitor = monitor_after(3)
    found = [monitor.judge(figures(**each)) for each in (changes, {}, changes)]
    assert [verdict.level for verdict in found] == ["collapsed", "quiet", "collapsed"]
    assert [verdict.is_new for verdict in found] == [True, False, False]
    monitor.rolled_back()
    assert monitor.judge(figures(**changes)).is_new


def test_after_a_roll_back_the_best_is_remembered_and_the_fall_is_not() -> None:
    monitor = monitor_after(10)
    assert last_of(monitor, 10, mean_return=-0.4).level == "warning"
    monitor.rolled_back()
    assert monitor.judge(figures()) == Verdict()
    assert last_of(monitor, 8, mean_return=-0.4).level == "warning"
