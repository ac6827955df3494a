"""Twenty hands of a person, trained on with the default settings, are enough to see a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.twenty_hands import Change, change, read


def test_the_distance_to_the_person_counts_each_total_as_often_as_it_was_demonstrated():
    person, turns = {(12, 0): 1.0, (18, 0): 0.0}, {(12, 0): 3, (18, 0): 1}
    before, after = {(12, 0): 0.4, (18, 0): 0.4}, {(12, 0): 0.9, (18, 0): 0.1}
    found = Change(person, turns, before, after, elapsed_s=1.0)
    assert found.distance(before) == pytest.approx((3 * 0.6 + 0.4) / 4)
    assert found.distance(after) == pytest.approx(0.1)


def test_a_person_reads_total_and_ace():
    assert read("Your total: 14. Usable ace: yes. Dealer shows: 10.") == (14, 1)


@pytest.mark.slow
def test_after_twenty_hands_the_hit_rate_has_moved_more_than_halfway_to_the_persons(tmp_path: Path):
    found = change(tmp_path, hands=20, stick_from=14, seed=11)
    before, after = found.distance(found.before), found.distance(found.after)
    assert before > 0.3, "the model plays otherwise at first, or nothing is shown"
    assert after < before / 2
    low = [at for at in found.turns if at[0] < 14]
    high = [at for at in found.turns if at[0] >= 14]
    assert all(found.after[at] > found.before[at] for at in low)
    assert all(found.after[at] < found.before[at] for at in high)
