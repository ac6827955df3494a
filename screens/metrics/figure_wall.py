"""Charts of the figures of a run: one large with its meaning, or many small ones beside each other."""

from __future__ import annotations

import math

from textual.content import Content
from textual.widget import Widget

from llamagym_tui.returns import margin
from llamagym_tui.screens.metrics.figure_texts import CHARTED, FIGURES, Health, health
from llamagym_tui.screens.metrics.line_chart import Series, chart
from llamagym_tui.screens.widgets.literal import one_line
from llamagym_tui.screens.widgets.numbers import plain, share
from llamagym_tui.state.run import RunState

SHARES = ("clip_fraction", "parse_failure_rate")
SMALL_WIDTH, SMALL_HEIGHT = 38, 8
"""Cells of a small chart, at least."""
MOST_MARKS = 3
"""Changes that are named under a chart."""
ASIDE = "$foreground 60%"


def figure_value(field: str, value: float) -> str:
    """A figure's value for people."""
    if not math.isfinite(value):
        return "not a number"
    return share(value) if field in SHARES else plain(value)


def present_health(state: RunState, field: str) -> Health:
    """Whether a figure of the last update is healthy."""
    assert state.stats is not None
    return health(field, state.stats, [value for _, value in state.history.values(field)])


def badge(found: Health) -> tuple[str, str]:
    """A word for a judgement, and its style."""
    if found.ok is None:
        return "·", ASIDE
    return ("ok", "$success") if found.ok else ("out", "bold $error")


def series(state: RunState, field: str) -> Series:
    """What the chart of a figure shows."""
    samples = state.history.samples
    errors = [margin(sample.stats.return_std / math.sqrt(max(sample.stats.episodes - 1, 1))) for sample in samples]
    text = FIGURES[field]
    return Series(
        state.history.values(field),
        errors if field == "mean_return" else (),
        [bound for bound in (text.low, text.high) if bound is not None],
        [mark.episode for mark in state.marks],
    )


class FigureChart(Widget):
    """One figure: its chart, what it means, what is healthy, and whether it is."""

    DEFAULT_CSS = """
    FigureChart { height: 1fr; padding: 0 1; }
    """

    def __init__(self, state: RunState, *, id: str) -> None:
        """The chart of mean return, until another figure is chosen."""
        super().__init__(id=id)
        self._state, self.field = state, CHARTED[0]

    def show(self, state: RunState, field: str) -> None:
        """Show a figure of a state, if anything in it is new."""
        changed = (state.history, state.marks, field) != (self._state.history, self._state.marks, self.field)
        self._state, self.field = state, field
        if changed:
            self.refresh()

    def render(self) -> Content:
        """The chart above the texts."""
        width, height = self.content_size
        folded = _folded(figure_texts(self._state, self.field), width, height // 2)
        drawn = chart(series(self._state, self.field), width, max(height - len(folded) - 2, 3))
        title = Content.styled(FIGURES[self.field].title, "bold")
        return Content("\n").join([title, drawn, Content(""), *folded])


def _folded(texts: list[Content], width: int, at_most: int) -> list[Content]:
    """Texts in lines of a width; of more lines than there is room for, the last texts go, but never the first three."""
    folded = [text.wrap(max(width, 1)) for text in texts]
    while len(folded) > 3 and sum(map(len, folded)) > at_most:
        folded.pop()
    return [line for lines in folded for line in lines]


def figure_texts(state: RunState, field: str) -> list[Content]:
    """What stands under the chart of a figure."""
    text = FIGURES[field]
    lines = [Content.assemble(("means    ", ASIDE), text.meaning), Content.assemble(("healthy  ", ASIDE), text.healthy)]
    if state.stats is not None:
        found = present_health(state, field)
        value = figure_value(field, float(getattr(state.stats, field)))
        style = badge(found)[1]
        lines.insert(0, Content.assemble(("now      ", ASIDE), (value, "bold"), "  ", (found.words, style)))
    if field == "mean_return":
        lines.append(Content.styled("░ 95 % confidence of each batch's mean", ASIDE))
    if state.marks:
        marks = " · ".join(f"{mark.episode:,} {one_line(mark.label)}" for mark in state.marks[-MOST_MARKS:])
        lines.append(Content.assemble(("┊ ", "$accent"), (f"changes  {marks}", ASIDE)))
    return lines


class FigureWall(Widget):
    """As many small charts as there is room for, the most telling first."""

    DEFAULT_CSS = """
    FigureWall { height: 1fr; padding: 0 1; }
    """

    def __init__(self, *, id: str) -> None:
        """No charts until a run is shown."""
        super().__init__(id=id)
        self._state: RunState | None = None

    def show(self, state: RunState) -> None:
        """Show another state, if anything in the charts is new."""
        shown, self._state = self._state, state
        if shown is None or (state.history, state.marks) != (shown.history, shown.marks):
            self.refresh()

    def render(self) -> Content:
        """Rows of charts of one size."""
        if self._state is None:
            return Content("")
        width, height = self.content_size
        columns, rows = max(1, width // SMALL_WIDTH), max(1, height // SMALL_HEIGHT)
        rows = min(rows, math.ceil(len(CHARTED) / columns))
        lines: list[Content] = []
        for row in range(rows):
            fields = CHARTED[row * columns : (row + 1) * columns]
            panels = [panel(self._state, field, width // columns, height // rows) for field in fields]
            lines += [Content("").join(cells) for cells in zip(*panels, strict=True)]
        return Content("\n").join(lines)


def panel(state: RunState, field: str, width: int, height: int) -> list[Content]:
    """A small chart under its heading, as lines of one width."""
    heading = Content.styled(FIGURES[field].title, "bold")
    if state.stats is not None:
        found = present_health(state, field)
        value = figure_value(field, float(getattr(state.stats, field)))
        heading = Content.assemble(heading, "  ", value, "  ", badge(found))
    drawn = chart(series(state, field), width - 2, height - 2).split("\n")
    lines = [heading, *drawn, *[Content("")] * height][:height]
    return [line.truncate(width, pad=True) for line in lines]
