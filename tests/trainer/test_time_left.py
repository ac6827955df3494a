"""How long the rest of something takes, by what of it is done."""

from llamagym_tui.returns import left_text
from llamagym_tui.trainer.event_sinks import TimeLeft
from tests.fake_parts import Clock


def test_the_rest_takes_as_long_as_it_did_of_late() -> None:
    clock = Clock()
    time_left = TimeLeft(clock)
    clock.now += 10.0
    assert time_left.seconds(10, 100) == 90.0  # one a second
    clock.now += 5.0
    assert time_left.seconds(60, 100) == 4.0  # fifty in the last five seconds
    clock.now += 1.0
    assert time_left.seconds(70, 100) == 3.0


def test_it_is_not_known_before_a_tenth_is_done() -> None:
    clock = Clock()
    time_left = TimeLeft(clock)
    assert time_left.seconds(0, 100) is None
    clock.now += 4.0
    assert time_left.seconds(9, 100) is None
    assert time_left.seconds(10, 100) == 36.0


def test_something_that_stands_still_takes_as_long_as_it_did_from_its_beginning() -> None:
    clock = Clock()
    time_left = TimeLeft(clock)
    clock.now += 5.0
    assert time_left.seconds(50, 100) == 5.0
    clock.now += 5.0
    time_left.seconds(50, 100)
    clock.now += 5.0
    assert time_left.seconds(50, 100) == 15.0


def test_two_minutes_and_more_are_said_in_minutes() -> None:
    assert left_text(None) == ""
    assert left_text(119.4) == ", 119 s left"
    assert left_text(120.0) == ", 2 min left"
    assert left_text(4000.0) == ", 67 min left"
