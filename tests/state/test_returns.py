"""Returns over a run: exact while there is room, bounded for ever."""

from __future__ import annotations

import pytest

from llamagym_tui.state.returns import (
    MAX_GROUPS,
    CurvePoint,
    MeanReturn,
    ReturnSeries,
    margin,
    mean_return,
    plus_minus,
    smoothing_window,
)


def test_a_short_series_keeps_every_return():
    series = ReturnSeries().add([1.0, -1.0]).add([3.0])
    assert series.trailing(1) == [CurvePoint(1, 1.0), CurvePoint(2, -1.0), CurvePoint(3, 3.0)]


def test_the_trailing_mean_begins_at_half_a_window():
    series = ReturnSeries().add([1.0, 2.0, 3.0, 4.0, 5.0])
    means = [(point.episode, point.mean_return) for point in series.trailing(4)]
    assert means == [(2, 1.5), (3, 2.0), (4, 2.5), (5, 3.5)]


def test_the_trailing_mean_has_the_standard_error_of_its_episodes():
    series = ReturnSeries().add([1.0, 2.0, 3.0, 4.0, 5.0])
    errors = [point.stderr for point in series.trailing(4)]
    # Variances 1/2, 1, 5/3 and 5/3 over 2, 3, 4 and 4 episodes.
    assert errors == pytest.approx([0.5, (1 / 3) ** 0.5, (5 / 12) ** 0.5, (5 / 12) ** 0.5])


def test_episodes_that_share_seeds_have_the_standard_error_of_the_seeds_means():
    # Two seeds of two episodes: means 1 and 0, so the error is sqrt(1/2) / sqrt(2). Alone they would have sqrt(1/12).
    series = ReturnSeries(effect=3.0).add([1.0, 1.0, 0.0, 0.0])
    assert series.trailing(4)[-1].stderr == pytest.approx(0.5)


def test_a_full_series_merges_neighbours_and_loses_no_episode():
    series = ReturnSeries().add([1.0, 3.0] * (MAX_GROUPS // 2))
    grown = series.add([10.0])
    assert grown.size == 2
    assert grown.groups[0] == (4.0, 10.0, 2)
    assert grown.groups[-1] == (10.0, 100.0, 1)
    assert grown.episodes == MAX_GROUPS + 1
    assert sum(group.total for group in grown.groups) == 2 * MAX_GROUPS + 10.0


def test_a_resumed_run_begins_where_it_stopped():
    assert ReturnSeries(start=500).add([2.0]).trailing(1) == [CurvePoint(501, 2.0)]


def test_a_return_that_is_not_finite_does_not_spoil_the_curve():
    assert ReturnSeries().add([float("nan"), 1.0]).trailing(2)[-1][:2] == (2, 0.5)


@pytest.mark.parametrize(("episodes", "window"), [(0, 20), (150, 20), (4000, 400), (90_000, 1000)])
def test_the_window_is_a_tenth_of_the_run_within_bounds(episodes: int, window: int):
    assert smoothing_window(episodes) == window


def test_mean_and_standard_error_by_hand():
    mean = mean_return([1.0, -1.0, 1.0, -1.0])
    assert mean is not None
    assert mean.mean == 0.0
    assert mean.stderr == pytest.approx((4 / 3) ** 0.5 / 2)
    assert mean_return([]) is None


def test_behind_a_plus_minus_stands_half_a_confidence_interval():
    # Two wins and two losses: the error is √(4/3) / 2 = 0.57735, and 1.96 of it are 1.13161.
    mean = mean_return([1.0, -1.0, 1.0, -1.0])
    assert mean is not None
    assert mean.text == "+0.0 ± 1.1"
    assert MeanReturn(-0.03, 0.03, 1000).text == "−0.030 ± 0.059"
    assert margin(0.5) == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (0.5004, 0.0004, "+0.500 ± 0.000"),
        (-0.2934, 0.0994, "−0.293 ± 0.099"),
        (-0.2934, 0.1, "−0.29 ± 0.10"),
        (9.3333, 0.9871, "+9.33 ± 0.99"),
        (187.3456, 12.3456, "+187 ± 12"),
        (187.3456, 9.8765, "+187.3 ± 9.9"),
        (-1594.25, 1960.0, "−1,594 ± 1,960"),
        (500.0, 0.0, "+500 ± 0"),
        (0.25, 0.0, "+0.250 ± 0.000"),
    ],
)
def test_a_mean_has_as_many_digits_as_its_plus_minus_leaves_certain(
    mean: float, half: float, text: str
):
    assert plus_minus(mean, half) == text


def test_episodes_after_a_checkpoint_can_be_taken_back():
    series = ReturnSeries(start=10).add([1.0, 2.0, 3.0])
    assert series.until(12).trailing(1) == [CurvePoint(11, 1.0), CurvePoint(12, 2.0)]
    assert series.until(13) is series
    assert series.until(4).groups == ()


def test_episodes_that_a_resumed_run_plays_again_take_the_place_of_the_earlier_ones():
    series = ReturnSeries().counted([1.0, 1.0, 1.0, 1.0], 4).counted([0.0, 0.0], 4)
    assert [group.total for group in series.groups] == [1.0, 1.0, 0.0, 0.0]


def test_a_series_that_begins_amid_a_run_knows_where():
    series = ReturnSeries().counted([1.0, 2.0], 10)
    assert series == ReturnSeries(8, ((1.0, 1.0, 1), (2.0, 4.0, 1)))


def test_many_returns_at_once_are_those_of_one_after_the_other():
    values = [float(value) for value in range(3000)]
    at_once, one_by_one = ReturnSeries().add(values), ReturnSeries()
    for value in values:
        one_by_one = one_by_one.add([value])
    assert at_once == one_by_one
    assert (at_once.size, at_once.episodes, len(at_once.groups)) == (8, 3000, 375)
    assert sum(group.total for group in at_once.groups) == 2999 * 1500
