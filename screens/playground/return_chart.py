"""The chart of mean return over episodes, with its confidence band, lines for random and optimal play, and a mark
wherever prompt, mode or a setting changed.
"""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import CurvePoint, MeanReturn, margin, smoothing_window, thinned
from llamagym_tui.screens.widgets.chart import Curve, Drawing, Level, Plot, line_of
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.screens.widgets.numbers import baselines, plain
from llamagym_tui.state.run import Mark, RunState


class ReturnChart(Vertical):
    DEFAULT_CSS = own_styles(__file__)

    def compose(self) -> ComposeResult:
        yield Plot("The curve begins with the first episodes.")
        yield Static(id="chart-legend", markup=False)

    def show(self, state: RunState) -> None:
        for plot in self.query(Plot):  # none in an app that is closing
            plot.show((state.returns, state.marks), lambda: self._drawing(state))

    def _drawing(self, state: RunState) -> Drawing | None:
        window = smoothing_window(state.returns.episodes)
        points = thinned(state.returns.trailing(window), 2 * max(20, self.size.width))
        if len(points) < 2:  # fewer episodes than a window are one point
            return None
        known = baselines(state)
        for legend in self.query("#chart-legend").results(Static):  # none in an app that is closing
            text, size = _legend(window, points[-1], state.marks), legend.content_size
            fits = (
                bool(size) and text.get_height(legend.styles.get_rules(), size.width) == size.height
            )
            legend.update(text, layout=not fits)
        return Drawing(
            [Curve([(point.episode, point.mean_return) for point in points])],
            [margin(point.stderr) for point in points],
            [Level(y, line_of(name), f"{name} {plain(y)}") for name, y in known.items()],
            [mark.episode for mark in state.marks],
            # The band of the first few episodes is as wide as the returns are: it may leave the chart.
            [
                *known.values(),
                *(
                    p.mean_return + s * margin(p.stderr)
                    for p in points[len(points) // 4 :]
                    for s in (-1, 1)
                ),
            ],
        )


def _legend(window: int, last: CurvePoint, marks: Sequence[Mark]) -> Content:
    """What the lines are that have no name, and where the curve is now, with how sure that is."""
    now = MeanReturn(last.mean_return, last.stderr, window).text
    text = Content.assemble(
        ("━ ", "$primary"),
        f"mean return {now} of {window:,} episodes ",
        ("░", "$secondary"),
        " 95 %",
    )
    if marks:
        episode, label, update = marks[-1]
        change = f"last change at {episode:,}, update {update:,}: {one_line(label)}"
        text += Content.assemble("\n", ("┊ ", "$accent"), change)
    return text
