"""Curves as bars of text."""

from llamagym_tui.screens.widgets.numbers import plain, spark, spark_rows


def test_bars_of_two_rows_are_filled_from_below_and_as_wide_as_wanted() -> None:
    """Of 16 steps the lowest value has the first, 8/15 the ninth, and the highest all; NaN stands at the bottom."""
    assert spark_rows([0.0, 7.0, 8.0, 15.0, float("nan")], 6, 2) == ["  ▁█  ", "▁███▁ "]


def test_a_curve_of_one_row_has_no_blanks_and_fits_what_else_is_drawn() -> None:
    assert spark([0.0, 1.0], 4) == "▁█"
    assert spark([0.0, 1.0], 4, fitted=[7.0]) == "▁▂"
    assert spark([], 4) == ""


def test_what_is_no_more_than_rounding_is_shown_as_0_unless_it_is_a_setting() -> None:
    assert [plain(value) for value in (-1e-8, 9e-7, 0.0, 2e-6)] == ["0", "0", "0", "2e−6"]
    assert plain(5e-7, least=0.0) == "5e−7"
