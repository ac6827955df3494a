"""What stands around the conversation: sentence and progress above, the drawing on it, curve, map, figures beside."""

from textual.containers import Vertical
from textual.message import Message

from llamagym_tui.screens.playground.banner import Banner
from llamagym_tui.screens.playground.figures import (
    FigureCurves,
    FiguresColumn,
    FiguresStrip,
    FirstSight,
)
from llamagym_tui.screens.playground.last_update import LastUpdate
from llamagym_tui.screens.playground.map_pane import MapPane
from llamagym_tui.screens.playground.progress_line import ProgressLine
from llamagym_tui.screens.playground.prompt_line import PromptLine
from llamagym_tui.screens.playground.return_chart import ReturnChart
from llamagym_tui.screens.playground.state_drawing import StateDrawing
from llamagym_tui.screens.playground.watch_line import WatchLine
from llamagym_tui.state.run import RunState


class Side(Vertical):
    """Curve, map and figures; which of them there is room for is asked again when its size is another."""

    class Resized(Message):
        pass

    def on_resize(self) -> None:
        self.post_message(self.Resized())


class Panels:
    def __init__(self, state: RunState) -> None:
        """The panels of a run, not mounted yet."""
        self.banner = Banner(id="banner", markup=False)
        self.head = (
            self.banner,
            ProgressLine(state, id="progress-line"),
            FirstSight(state, id="first-sight"),
            PromptLine(state, id="prompt-line"),
        )
        self.chart = ReturnChart()
        self.map = MapPane(id="map-pane")
        self.above = (WatchLine(state, id="watch-line"), StateDrawing(state, id="drawing"))
        self.side = Side(
            self.chart,
            self.map,
            FiguresStrip(state, id="figures-strip"),
            FiguresColumn(state, id="figures-column"),
            id="side",
        )
        self.third = Vertical(
            FigureCurves(state, id="figure-curves"),
            LastUpdate(state, id="last-update"),
            id="third",
        )
