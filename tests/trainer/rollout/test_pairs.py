"""Pairs of episodes on the same seeds: which are paired, how many are played, and what they come to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.evaluation import (
    Episodes,
    compared,
    difference,
    enough_for,
    played,
)

Earns = Callable[[int], float]


def hand(number: int, value: float, turns: int = 1, failures: int = 0) -> EpisodeCounts:
    return EpisodeCounts(value, turns, failures, mode="inference", number=number)


class Scripted:
    """Two players whose hand of a seed earns what the test says; A loses some hands altogether."""

    def __init__(self, a: Earns, b: Earns, dropped: tuple[int, ...] = ()) -> None:
        self.earns, self.dropped, self.asked = (a, b), dropped, list[tuple[int, int, int]]()

    def __call__(self, side: int, episodes: int, seed: int, ended: Episodes) -> bool:
        self.asked.append((side, episodes, seed))
        numbers = [n for n in reversed(range(episodes)) if side or n not in self.dropped]
        ended += [hand(n, self.earns[side](n)) for n in numbers]
        return len(self.asked) < 4


def test_episodes_are_paired_by_their_seed_and_one_that_failed_has_no_pair() -> None:
    pairs = played(Scripted(lambda n: n % 7, lambda n: n % 7 + 0.5, dropped=(3,)), 0.1)
    assert pairs is not None
    assert [each.number for each in pairs[0]] == [each.number for each in pairs[1]]
    assert 3 not in [each.number for each in pairs[0]]
    assert difference(*pairs) == (0.5, 0.0, 255)


def test_as_many_are_played_as_the_interval_needs() -> None:
    # Differences of ±1 have a variance of 256/255: ±0.06 takes 1,071.3 pairs, and a tenth more.
    play = Scripted(lambda n: 0.0, lambda n: 1.0 if n % 2 else -1.0)
    assert played(play, 0.06) is None, "the fourth was not played to its end"
    assert play.asked == [(0, 256, 0), (1, 256, 0), (0, 923, 1), (1, 923, 1)]


@pytest.mark.parametrize(
    ("baselines", "enough"),
    [({"random": -0.4, "optimal": -0.05}, 0.035), ({"random": 1.0}, 0.05), ({}, 0.05)],
)
def test_a_tenth_of_the_way_between_the_baselines_is_narrow_enough(
    baselines: dict[str, float], enough: float
) -> None:
    assert enough_for(baselines) == pytest.approx(enough)


def test_a_comparison_has_both_means_and_the_paired_difference() -> None:
    a = [hand(n, -1.0, 3, failures=n % 2) for n in range(4)]
    b = [hand(n, value, 3) for n, value in enumerate((-1.0, 0.0, 0.0, 1.0))]
    by = [{"prompt_version": version, "system_prompt": f"v{version}"} for version in (1, 2)]
    found = compared((a, b), by, elapsed_s=2.0, greedy=True, enough=0.1)
    # Differences 0, 1, 1, 2: mean 1, deviation √(2/3), standard error √(1/6); B's own: deviation √(2/3), too.
    assert (found.pairs, found.difference) == (4, 1.0)
    assert found.difference_stderr == pytest.approx((1 / 6) ** 0.5)
    assert (found.a.mean_return, found.a.return_stderr, found.a.parse_failure_rate) == (
        -1.0,
        0.0,
        2 / 12,
    )
    assert (found.b.mean_return, found.b.return_stderr) == (0.0, pytest.approx((1 / 6) ** 0.5))
    assert (found.b.prompt_version, found.b.system_prompt, found.b.episodes) == (2, "v2", 4)
