"""What stands around the conversation: sentences and the drawing above it, curve and figures next to it or below."""

from textual.containers import Vertical

from llamagym_tui.screens.playground.banner import Banner
from llamagym_tui.screens.playground.figures import (
    FiguresColumn,
    FiguresStrip,
    FirstSight,
    LargeFigures,
)
from llamagym_tui.screens.playground.mode_comparison import ComparisonColumn, ComparisonStrip
from llamagym_tui.screens.playground.return_chart import ReturnChart
from llamagym_tui.screens.playground.state_drawing import StateDrawing
from llamagym_tui.screens.playground.watch_line import WatchLine
from llamagym_tui.state.run import RunState


class Panels:
    def __init__(self, state: RunState) -> None:
        """The panels of a run, not mounted yet."""
        self.banner = Banner(id="banner", markup=False)
        self.chart = ReturnChart()
        self.above = (WatchLine(state, id="watch-line"), StateDrawing(state, id="pane-drawing"))
        self.side = Vertical(
            FirstSight(state, id="first-sight"),
            self.chart,
            LargeFigures(state, id="large-column"),
            FiguresColumn(state, id="figures-column"),
            ComparisonColumn(state, id="comparison-column"),
            StateDrawing(state, id="side-drawing"),
            id="side",
        )
        strip, comparison = (
            FiguresStrip(state, id="figures-strip"),
            ComparisonStrip(state, id="comparison-strip"),
        )
        self.below = (
            FirstSight(state, id="strip-sight"),
            strip,
            LargeFigures(state, id="large-strip"),
            comparison,
        )
