"""What stands around the conversation: sentences and the drawing above it, curve and figures beside or below it."""

from __future__ import annotations

from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical

from llamagym_tui.run_state import RunState
from llamagym_tui.screens.widgets.banner import Banner
from llamagym_tui.screens.widgets.figures import FiguresColumn, FiguresStrip
from llamagym_tui.screens.widgets.return_chart import ReturnChart
from llamagym_tui.screens.widgets.state_drawing import DrawingPlaces, StateDrawing
from llamagym_tui.screens.widgets.watch_line import WatchLine


class SidePanel(Vertical):
    """Chart and figures of a wide terminal."""

    def __init__(self, state: RunState, drawing: StateDrawing) -> None:
        """The panel of a run, with the drawing of its watched state."""
        super().__init__(id="side")
        self._state, self._drawing = state, drawing

    def compose(self) -> ComposeResult:
        """The curve above the figures."""
        yield ReturnChart()
        yield FiguresColumn(self._state, id="figures-column")
        yield self._drawing

    def show(self, state: RunState) -> None:
        """Show the figures of another state; `show_chart` draws the curve."""
        for column in self.query(FiguresColumn):  # none in an app that is closing
            column.show(state)

    def show_chart(self, state: RunState) -> None:
        """Draw the curve of a state."""
        for chart in self.query(ReturnChart):  # none in an app that is closing
            chart.show(state)


class Panels(NamedTuple):
    """Everything around a conversation."""

    banner: Banner
    watch_line: WatchLine
    side: SidePanel
    strip: FiguresStrip
    drawing: DrawingPlaces


def make_panels(state: RunState) -> Panels:
    """The panels of a run, not mounted yet."""
    drawing = DrawingPlaces(state)
    side = SidePanel(state, drawing.side)
    return Panels(Banner(), WatchLine(), side, FiguresStrip(state, id="figures-strip"), drawing)
