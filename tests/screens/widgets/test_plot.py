"""The chart that all screens share: what it shows when there is nothing to draw, and afterwards."""

from __future__ import annotations

import time

import pytest
from textual.app import ComposeResult

from llamagym_tui.screens.widgets import chart as charts
from llamagym_tui.screens.widgets.chart import (
    BAND,
    BOUND,
    Curve,
    Drawing,
    Level,
    Plot,
    chart_rows,
)
from tests.screens.steps import BareApp, until

RISING = Drawing(curves=[Curve([(0.0, -1.0), (1.0, 1.0)], color="primary")])


class ChartApp(BareApp):
    def compose(self) -> ComposeResult:
        yield Plot("nothing yet")


def text_of(drawing: Drawing, width: int, height: int) -> list[str]:
    """A chart as text."""
    rows = ["".join(cell.character for cell in row) for row in chart_rows(drawing, width, height)]
    assert len(rows) == height
    assert {len(row) for row in rows} == {width}
    return rows


def test_one_curve_is_an_area_and_two_are_lines_of_dots_between_their_axes():
    assert text_of(RISING, 10, 5) == [
        " 1 ┤    ▁▆",
        "   │   ▃██",
        " 0 ┤  ▅███",
        "−1 ┤▂▇████",
        "   └0────1",
    ]
    both = RISING._replace(curves=RISING.curves * 2)
    assert text_of(both, 10, 5) == [
        " 1 ┤    ⢀⠎",
        "   │   ⡰⠁ ",
        " 0 ┤ ⢀⠎   ",
        "−1 ┤⡰⠁    ",
        "   └0────1",
    ]


def test_a_level_far_off_stands_at_the_edge_and_does_not_flatten_the_curve():
    curve = Curve([(0.0, 22.0), (9.0, 30.0)])
    rows = text_of(Drawing([curve], levels=[Level(500.0, BOUND, "best 500")]), 40, 8)
    assert rows[0].endswith("best 500 ↑")
    assert any(row.strip().startswith("30") for row in rows)
    near = text_of(Drawing([curve], levels=[Level(36.0, BOUND, "best 36")]), 40, 8)
    assert any("╌" in row and row.rstrip().endswith("best 36") for row in near)


def test_a_narrow_chart_names_its_levels_without_their_figures():
    curve = Curve([(0.0, -1.0), (9.0, 1.0)])
    drawing = Drawing([curve], levels=[Level(0.0, BOUND, "random −0.396")])
    assert any("random −0.396" in row for row in text_of(drawing, 60, 8))
    narrow = text_of(drawing, 36, 8)
    assert any(row.endswith(" random") for row in narrow)
    far = Drawing([curve], levels=[Level(500.0, BOUND, "best 500.0000000")])
    assert text_of(far, 26, 8)[0].endswith(" best ↑")


def test_the_top_of_the_area_stands_on_the_band():
    points = [(float(x), 0.3 * (x % 2)) for x in range(11)]
    cells = chart_rows(Drawing([Curve(points)], [1.0] * 11), 30, 9)
    tops = [cell for row in cells for cell in row if cell.character in "▁▂▃▄▅▆▇"]
    assert tops
    assert {cell.ground for cell in tops} <= {BAND}


@pytest.mark.parametrize(
    ("width", "labels"), [(40, ["0", "2,000", "4,000", "6,000"]), (26, ["0", "5,000"])]
)
def test_labels_of_the_x_axis_stand_apart_under_their_places(width: int, labels: list[str]):
    long = Drawing(curves=[Curve([(0.0, -1.0), (6500.0, 1.0)])])
    *_, axis = text_of(long, width, 12)
    inside = axis[axis.index("└") + 1 :]
    found = [each for each in inside.split("─") if each]
    assert found == labels
    for label in found:
        episode = int(label.replace(",", ""))
        middle = inside.index(label) + len(label) / 2
        assert abs(middle - episode / 6500 * len(inside)) <= 1


def test_the_band_is_around_the_curve_and_a_mark_in_its_column():
    points = [(float(x), 0.0) for x in range(11)]
    drawing = Drawing(
        [Curve(points)], [0.5] * 11, [Level(-1.0, BOUND), Level(1.0, BOUND)], [(5.0, "v1")]
    )
    rows = text_of(drawing, 24, 12)
    cells = chart_rows(drawing, 24, 12)
    assert [n for n, row in enumerate(cells) if any(each.ground == BAND for each in row)] == [
        3,
        4,
        5,
    ]
    assert [n for n, row in enumerate(rows) if "██" in row] == [6, 7, 8, 9]
    assert " v1 " in rows[10]
    columns = {row.index("┊") for row in rows if "┊" in row}
    assert len(columns) == 1
    inside = rows[-1].index("└") + 1
    assert abs(columns.pop() - inside - 0.5 * (24 - inside)) <= 1


@pytest.mark.parametrize("height", [1, 2, 6])
@pytest.mark.parametrize("width", [4, 10, 30])
def test_whatever_the_room_and_the_values_are_a_chart_fills_it(width: int, height: int):
    for value in (0.0, 1e9, -1e-9, 1e300):
        for last in (1.0, 1e12):
            points = [(0.0, value), (last, -value)]
            levels = [Level(value, BOUND, "optimal")]
            drawing = Drawing([Curve(points)], [abs(value)] * 2, levels, [(last, "a change")])
            rows = chart_rows(drawing, width, height)
            assert len(rows) == height


async def test_a_drawing_waits_for_its_time_and_comes_with_the_first_call_after_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(charts, "CHART_S", 60.0)
    now, real = 0.0, time.monotonic
    monkeypatch.setattr(charts.time, "monotonic", lambda: real() + now)
    async with ChartApp().run_test(size=(80, 24)) as pilot:
        chart = pilot.app.query_one(Plot)
        chart.show("first", lambda: RISING, at_once=True)
        await until(pilot, lambda: chart.is_drawn("first"), "the first drawing")
        chart.show("second", lambda: RISING)
        assert chart.due
        assert chart.is_drawn("first")
        now = 60.0
        chart.show("third", lambda: RISING)
        assert chart.is_drawn("third")
