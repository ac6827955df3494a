"""What stands around the conversation: sentences and the drawing above it, curve and figures next to it or below."""

from textual.app import ComposeResult
from textual.containers import Vertical

from llamagym_tui.screens.playground.banner import Banner
from llamagym_tui.screens.playground.figures import FiguresColumn, FiguresStrip, FirstSight, LargeFigures
from llamagym_tui.screens.playground.mode_comparison import ComparisonColumn, ComparisonStrip
from llamagym_tui.screens.playground.return_chart import ReturnChart
from llamagym_tui.screens.playground.state_drawing import StateDrawing
from llamagym_tui.screens.playground.watch_line import WatchLine
from llamagym_tui.state.run import RunState

HIGH_ENOUGH_FOR_BOTH = 44
"""Rows of a terminal from which PPO's figures and the comparison of the modes stand under each other."""


class SidePanel(Vertical):
    """Chart and figures of a wide terminal."""

    def __init__(self, state: RunState) -> None:
        super().__init__(id="side")
        self._state = state

    def compose(self) -> ComposeResult:
        yield FirstSight(self._state, id="first-sight")
        yield ReturnChart()
        yield LargeFigures(self._state, id="large-column")
        yield FiguresColumn(self._state, id="figures-column")
        yield ComparisonColumn(self._state, id="comparison-column")
        yield StateDrawing(self._state, id="side-drawing")

    def show(self, state: RunState) -> None:
        for chart in self.query(ReturnChart):  # none in an app that is closing
            chart.show(state)
        if not self.is_attached:
            return
        played = state.play.inference.manner is not None
        self.screen.set_class(state.mode == "inference", "-inference")
        self.screen.set_class(played and self.screen.size.height >= HIGH_ENOUGH_FOR_BOTH, "-was-inference")


class Panels:
    def __init__(self, state: RunState) -> None:
        """The panels of a run, not mounted yet."""
        self.banner, self.side = Banner(), SidePanel(state)
        self.above = (WatchLine(state, id="watch-line"), StateDrawing(state, id="pane-drawing"))
        strip, comparison = FiguresStrip(state, id="figures-strip"), ComparisonStrip(state, id="comparison-strip")
        self.below = (FirstSight(state, id="strip-sight"), strip, LargeFigures(state, id="large-strip"), comparison)
