"""Curves as bars of text."""

from llamagym_tui.screens.widgets.numbers import plain, spark


def test_a_curve_of_one_row_has_its_lowest_and_highest_value_at_the_ends() -> None:
    assert spark([0.0, 1.0], 4) == "▁█"
    assert spark([0.0, 7.0, 3.0, float("nan")], 4) == "▁█▄▁"
    assert spark([], 4) == ""


def test_what_is_no_more_than_rounding_is_shown_as_0_unless_it_is_a_setting() -> None:
    assert [plain(value) for value in (-1e-8, 9e-7, 0.0, 2e-6)] == ["0", "0", "0", "2e−6"]
    assert plain(5e-7, least=0.0) == "5e−7"
