"""A chart in cells: where a value lands can be worked out by hand."""

from __future__ import annotations

from llamagym_tui.screens.metrics.line_chart import GUTTER, Frame, Series, chart


def rows(series: Series, width: int = GUTTER + 20, height: int = 7) -> list[str]:
    return chart(series, width, height).plain.split("\n")


def test_a_value_lands_in_its_column_and_row():
    frame = Frame(left=0, right=100, low=-1, high=1, width=10, height=4)
    assert [frame.column(x) for x in (0, 9, 11, 100)] == [0, 0, 1, 9]
    assert [frame.row(y) for y in (1, 0.4, -0.1, -1)] == [0, 1, 2, 3]
    assert (frame.column(100, 2), frame.row(-1, 4)) == (19, 15)


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right():
    first, *_, last, axis = rows(Series([(0, 0.0), (100, 1.0)]))
    assert last[GUTTER] != " "
    assert first.rstrip()[-1] != " "
    assert first[GUTTER : GUTTER + 10].strip() == ""
    assert axis.split() == ["0", "100", "episodes"]


def test_the_chart_has_exactly_the_rows_that_it_is_given():
    drawn = rows(Series([(0, 0.0), (50, 1.0)], errors=[0.1, 0.1], bounds=[0.5], marks=[25]))
    assert len(drawn) == 7
    assert all(len(row) <= GUTTER + 20 for row in drawn)
    text = "\n".join(drawn)
    assert all(glyph in text for glyph in "░╌┊")


def test_a_bound_far_off_does_not_flatten_the_line():
    near = "\n".join(rows(Series([(0, 0.0), (50, 1.0)], bounds=[1.5])))
    far = "\n".join(rows(Series([(0, 0.0), (50, 1.0)], bounds=[50.0])))
    assert "╌" in near
    assert "╌" not in far


def test_values_that_are_not_finite_and_lines_that_do_not_move_are_drawn():
    assert len(rows(Series([(0, 1.0), (10, float("nan")), (20, 1.0), (20, float("inf"))]))) == 7
    assert "begins with" in chart(Series([(0, 1.0)]), 60, 7).plain
    assert chart(Series([]), 10, 1).plain == ""


def test_before_there_is_a_line_its_place_says_when_there_will_be_one():
    assert rows(Series([(0, 1.0)]), width=28) == ["The line begins with the", "second update.", *[""] * 5]
    assert rows(Series([(0, 1.0)]), width=18) == [""] * 7
    assert rows(Series([(0, 1.0)]), width=28, height=1) == [""]
