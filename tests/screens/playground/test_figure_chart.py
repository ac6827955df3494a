"""What the chart of a figure shows, before it is drawn."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.protocol.events import DepthMeasured, UpdateFinished
from llamagym_tui.screens.playground.metrics import (
    depth_picture,
    figure_drawing,
)
from llamagym_tui.screens.widgets.chart import y_range
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes


def after(field: str, *values: float) -> RunState:
    """A run whose updates measured some values."""
    state = initial_state(fakes.config(Path("/runs/demo")))
    for number, value in enumerate(values, 1):
        stats = replace(fakes.STATS, **{field: value})
        state = reduce(state, UpdateFinished(update=number, episodes=10 * number, stats=stats))
    return state


def test_a_line_needs_two_finite_values():
    assert figure_drawing(after("kl_ref", 0.1), "kl_ref") is None
    assert figure_drawing(after("kl_ref", 0.1, float("nan"), float("inf")), "kl_ref") is None
    drawing = figure_drawing(after("kl_ref", 0.1, float("nan"), 0.2), "kl_ref")
    assert drawing is not None
    assert drawing.curves[0].points == [(10, 0.1), (30, 0.2)]


def test_a_bound_far_off_does_not_flatten_the_line():
    near, far = (figure_drawing(after("kl_ref", 0.1, high), "kl_ref") for high in (0.25, 0.101))
    assert near is not None
    assert far is not None
    assert [level.y for level in near.levels] == [-0.02, 0.3]
    assert y_range(far)[1] < 0.11


def test_the_band_of_a_mean_return_fits_into_its_chart():
    state = after("mean_return", -0.5, -0.25)
    drawing = figure_drawing(state, "mean_return")
    assert drawing is not None
    assert drawing.band[0] > 0
    points = zip(drawing.curves[0].points, drawing.band, strict=True)
    assert y_range(drawing)[0] < min(y - half for (_, y), half in points)


def test_a_mean_return_has_its_baselines_in_its_chart_and_no_other_figure_has():
    state = replace(after("mean_return", -0.5, -0.25), run=fakes.run_started())
    drawing = figure_drawing(state, "mean_return")
    assert [(level.y, level.line.color) for level in drawing.levels] == [
        (-0.0466, "success"),
        (-0.396, "warning"),
    ]
    low, high = y_range(drawing)
    assert low < -0.396 < -0.0466 < high
    other = replace(after("value_loss", -0.5, -0.25), run=fakes.run_started())
    assert not {-0.0466, -0.396} & {level.y for level in figure_drawing(other, "value_loss").levels}


def test_the_depth_at_which_the_game_is_seen_is_a_bar_for_each_number_of_layers() -> None:
    measured = DepthMeasured(
        layers=[12, 24, 30],
        explained=[[0.25, 0.1], [0.5, 0.1], [0.45, 0.2]],
        values=["reward", "x"],
        read=24,
    )
    assert [row.plain for row in depth_picture(measured)] == [
        "where in the model the reward is seen",
        "layer  12 ██▌         25%",
        "layer  24 █████       50% ← read up to here",
        "layer  30 ████▌       45%",
    ]
