"""Figures over a run: bounded, the last one always there."""

from __future__ import annotations

from msgspec.structs import replace

from llamagym_tui.protocol.events import UpdateFinished
from llamagym_tui.state.run import MAX_SAMPLES, UpdateSeries
from tests import fakes


def update(number: int, episodes: int | None = None, **stats: float) -> UpdateFinished:
    at = 100 * number if episodes is None else episodes
    return UpdateFinished(update=number, episodes=at, stats=replace(fakes.STATS, **stats))


def test_a_long_series_is_bounded_evenly_spaced_and_ends_with_the_last_update():
    series = UpdateSeries()
    for number in range(1, 5 * MAX_SAMPLES + 4):
        series = series.add(update(number))
        assert len(series.samples) <= MAX_SAMPLES
        assert series.samples[-1].update == number
    *kept, _ = [sample.update for sample in series.samples]
    assert series.every == 8
    assert kept == list(range(1, kept[-1] + 1, 8))


def test_updates_that_are_made_again_after_a_resume_replace_those_before():
    series = UpdateSeries().add(update(1)).add(update(2)).add(update(3))
    again = series.add(update(2, 150, entropy=9.0))
    assert [(sample.update, sample.episodes) for sample in again.samples] == [(1, 100), (2, 150)]
