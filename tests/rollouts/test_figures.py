"""Figures of a step and orders of a list, by hand-worked numbers."""

import pytest
from msgspec.structs import replace

from llamagym_tui.rollouts.figures import ORDERS, ordered, step_figures
from llamagym_tui.rollouts.repeats import Repeated, common_start, repeated
from llamagym_tui.rollouts.rollout import Entry, Rollout, Said


def entry(place: int, reward: float | None = None, group: int = 0, length: int = 1) -> Entry:
    return Entry(0, place, 0, 1, group, reward, None, length, "")


def test_a_step():
    entries = [
        entry(0, 1.0, group=1, length=10),
        entry(1, 1.0, group=1, length=20),
        entry(2, 0.0, group=2, length=30),
        entry(3, 2.0, group=2),
        entry(4, 5.0, group=3),
        entry(5, None, group=3),
    ]
    found = step_figures(1, entries)
    # Rewards 1, 1, 0, 2, 5: mean 1.8, variance (0.64 + 0.64 + 3.24 + 0.04 + 10.24) / 5 = 2.96.
    assert (found.rollouts, found.mean, found.groups, found.alike) == (6, 1.8, 2, 0.5)
    assert found.spread == pytest.approx(2.96**0.5)
    assert found.length == pytest.approx(63 / 6)


def test_groups_of_a_prompt_are_one_in_each_step():
    steps = [(1, 0.0), (1, 1.0), (2, 1.0), (2, 1.0)]
    entries = [replace(entry(at, reward), step=step) for at, (step, reward) in enumerate(steps)]
    found = step_figures(None, entries)
    assert (found.groups, found.alike) == (2, 0.5)


def test_a_step_without_rewards():
    found = step_figures(None, [entry(0), entry(1)])
    assert found[2:6] == (None, None, 0, None)


def test_orders():
    now = [
        entry(0, 0.0, group=1, length=5),
        entry(1, None, group=2, length=9),
        entry(2, 1.0, group=3, length=7),
        entry(3, 0.5, group=1, length=1),
    ]
    before = [entry(9, 1.0, group=1), entry(8, 0.9, group=3), entry(7, 0.0, group=4)]
    places = {order: [each.place for each in ordered(order, now, before)] for order in ORDERS}
    assert places == {
        "as written": [0, 1, 2, 3],
        "best first": [2, 3, 0, 1],
        "worst first": [0, 3, 2, 1],
        "longest first": [1, 2, 0, 3],
        # Group 1 went from 1.0 to 0.25, group 3 from 0.9 to 1.0; nothing is known of group 2 before.
        "changed most": [0, 3, 2, 1],
    }


def said(text: str) -> Rollout:
    return Rollout((Said("user", "I am sure of it."), Said("assistant", text)))


def test_what_many_say_is_counted_once_in_each():
    rollouts = [said("so it is, so it is"), said("so it is not"), said("no"), said("")]
    assert repeated(rollouts) == [Repeated("so it is", 0.5)]
    found = repeated(rollouts, least=1)
    assert Repeated("it is not", 0.25) in found
    assert not any("sure" in each.words for each in found)


def test_punctuation_that_repeats_is_left_out():
    found = repeated([said('{"look_up": ["x"], "y": 3}'), said('{"look_up": ["x"], "y": 4}')])
    assert [each.words for each in found] == []
    # Two words of three.
    found = repeated([said("look_up ( x"), said("look_up ( x")])
    assert [each.words for each in found] == ["look_up ( x"]


def test_how_far_texts_are_alike():
    assert common_start(["the cat sat", "the car sat", "the cat"]) == len("the ")
    assert common_start(["a b", "a b"]) == 3
    assert common_start(["a b", "a b c"]) == len("a ")
    assert common_start(["x", "y"]) == common_start(["", "y"]) == 0
