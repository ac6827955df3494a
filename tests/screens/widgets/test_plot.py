"""The chart that all screens share: what it shows when there is nothing to draw, and afterwards."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from textual._compositor import Compositor
from textual.app import ComposeResult
from textual_plot import PlotWidget

from llamagym_tui.screens.widgets import plot
from llamagym_tui.screens.widgets.plot import (
    BOUND,
    Curve,
    Drawing,
    Level,
    Plot,
    baseline_levels,
)
from tests.screens.steps import BareApp, sees, shown, until

RISING = Drawing(curves=[Curve([(0.0, -1.0), (1.0, 1.0)], color="primary")])

FALLING = Drawing(curves=[Curve([(0.0, 1.0), (1.0, -1.0)], color="primary")])


class ChartApp(BareApp):
    def compose(self) -> ComposeResult:
        yield Plot("nothing yet")


async def test_a_chart_that_had_nothing_to_draw_comes_back_with_the_same_drawing():
    async with ChartApp().run_test(size=(80, 24)) as pilot:
        chart = pilot.app.query_one(Plot)
        wait = chart.query_one(".plot-wait")
        for _ in range(2):
            chart.show("rising", lambda: RISING, at_once=True)
            await until(pilot, lambda: chart.is_drawn("rising") and not wait.display, "the chart")
            assert chart.query_one("PlotWidget").display
            chart.show("nothing", lambda: None, at_once=True)
            await until(pilot, lambda: wait.display, "the text in its place")
            assert not chart.is_drawn("nothing")


@pytest.mark.parametrize(
    ("width", "labels"), [(26, [0.0, 5000.0]), (80, [0.0, 2000.0, 4000.0, 6000.0])]
)
async def test_labels_of_the_x_axis_stand_apart(width: int, labels: list[float]):
    long = Drawing(curves=[Curve([(0.0, -1.0), (6500.0, 1.0)])])
    async with ChartApp().run_test(size=(width, 12)) as pilot:
        chart = pilot.app.query_one(Plot)
        chart.show("long", lambda: long, at_once=True)
        await until(pilot, lambda: chart.is_drawn("long"), "the chart")
        assert chart.query_one(PlotWidget)._x_ticks == labels


async def test_levels_are_named_where_no_curve_passes_and_of_two_in_one_row_the_first_is():
    known = {"optimal": 0.98, "expert": 0.96, "random": -0.98}
    levels = [*baseline_levels(known), Level(0.2, BOUND)]
    rising = RISING._replace(levels=levels, fitted=[*known.values()])
    async with ChartApp().run_test(size=(80, 24)) as pilot:
        chart = pilot.app.query_one(Plot)
        chart.show("rising", lambda: rising, at_once=True)
        await until(pilot, lambda: chart.is_drawn("rising"), "the chart")
        await sees(pilot, " optimal ")
        rows = shown(pilot).splitlines()
        assert any(re.search("┫ optimal +═ ═", row) for row in rows), (
            "at the right the curve arrives"
        )
        assert any("· random ┣" in row for row in rows)
        assert "expert" not in shown(pilot)


async def test_a_chart_that_gets_no_parts_as_the_app_is_closing_fails_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(PlotWidget, "compose", lambda plot: iter(()))
    async with ChartApp().run_test(size=(80, 24)) as pilot:
        chart = pilot.app.query_one(Plot)
        chart.show("rising", lambda: RISING, at_once=True)
        await until(pilot, lambda: bool(chart.query(PlotWidget)), "it is mounted")
        await pilot.pause()
        assert not chart.is_drawn("rising")


async def test_a_drawing_waits_for_its_time_and_comes_with_the_first_call_after_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(plot, "CHART_S", 60.0)
    now, real = 0.0, time.monotonic
    monkeypatch.setattr(plot.time, "monotonic", lambda: real() + now)
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


async def test_a_drawing_of_the_same_size_is_painted_once(monkeypatch: pytest.MonkeyPatch):
    async with ChartApp().run_test(size=(80, 24)) as pilot:
        chart = pilot.app.query_one(Plot)
        chart.show("first", lambda: RISING, at_once=True)
        await until(pilot, lambda: chart.is_drawn("first"), "the first drawing")
        await pilot.pause(0.3)
        paints, paint = 0, Compositor.render_update

        def counted(compositor: Compositor, **how: Any) -> Any:
            nonlocal paints
            paints += 1
            return paint(compositor, **how)

        monkeypatch.setattr(Compositor, "render_update", counted)
        chart.show("second", lambda: FALLING, at_once=True)
        await pilot.pause(0.3)
        assert paints == 1
