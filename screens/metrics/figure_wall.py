"""Charts of the figures of a run: one large with its meaning, and all the charted ones in small."""

import math
from itertools import pairwise
from statistics import fmean

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from llamagym_tui.config import FIGURES, UpdateStats
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import margin
from llamagym_tui.screens.metrics.figure_health import OF_ENDED, Health, health, shown_figures
from llamagym_tui.screens.widgets.chart import (
    BOUND,
    Curve,
    Drawing,
    Level,
    Plot,
    baseline_levels,
    line_of,
)
from llamagym_tui.screens.widgets.look import ASIDE, own_styles
from llamagym_tui.screens.widgets.numbers import baselines, plain, share, spark_rows
from llamagym_tui.state.run import RunState

SHARES = ("clip_fraction", "parse_failure_rate", "refusal_rate", "flat_groups")
MOST_MARKS = 3
"""Changes that are named under a chart."""
COLUMNS = 3
"""Columns of the wall."""
GAP = 2
"""Cells between two columns."""


def figure_value(stats: UpdateStats, field: str) -> str:
    measured = getattr(stats, field)
    if isinstance(measured, int):  # a count
        return f"{measured:,}"
    value = float(measured)
    if not math.isfinite(value):
        return "none" if field in OF_ENDED else "no number"
    if field in SHARES:
        return share(value)
    return plain(value, 0.0 if field == "lr" else 1e-6)


def present_health(state: RunState, field: str) -> Health:
    """Whether a figure of the last update is healthy."""
    assert state.stats is not None
    return health(field, state.stats, [value for _, value in state.history.values(field)])


def badge(found: Health) -> tuple[str, str]:
    """A judgement in short, and its style."""
    if found.ok is None:
        return "·", ASIDE
    return ("ok", "$success") if found.ok else ("out", "bold $error")


def samples(state: RunState, field: str) -> list[tuple[float, float, float]]:
    """A figure over the episodes, with half the 95 % confidence interval where there is one; finite values alone."""
    halves = [
        margin(sample.stats.return_stderr)
        if field == "mean_return" and math.isfinite(sample.stats.return_stderr)
        else 0.0
        for sample in state.history.samples
    ]
    values = zip(state.history.values(field), halves, strict=True)
    return [(episode, value, half) for (episode, value), half in values if math.isfinite(value)]


def figure_drawing(state: RunState, field: str) -> Drawing | None:
    """The chart of a figure; None: a line needs two updates."""
    points = samples(state, field)
    text = FIGURES[field]
    if len(points) < 2:
        return None
    known = baselines(state) if field == "mean_return" else {}
    low = min(y - half for _, y, half in points)
    high = max(y + half for _, y, half in points)
    span = high - low or abs(high) or 1.0
    # A bound far off would flatten the line.
    near = [
        bound
        for bound in (text.low, text.high)
        if bound is not None and low - span <= bound <= high + span
    ]
    return Drawing(
        [Curve([(x, y) for x, y, _ in points])],
        [half for *_, half in points],
        [*(Level(bound, BOUND) for bound in near), *baseline_levels(known)],
        [mark.episode for mark in state.marks],
        [low, high, *near, *known.values()],
    )


class FigureChart(Vertical):
    """One figure: what it means, its chart, what is healthy, and whether it is."""

    DEFAULT_CSS = (
        "FigureChart { height: 1fr; padding: 0 1; & > Static { height: auto; max-height: 50%; } }"
    )

    def __init__(self, state: RunState, *, id: str) -> None:
        """The chart of mean return, until another figure is chosen."""
        super().__init__(id=id)
        self._state = state
        self.field = "mean_return"
        """The figure that is shown, by its field of `UpdateStats`."""

    def compose(self) -> ComposeResult:
        yield Static(id="figure-title", markup=False)
        yield Plot("The line begins with the second update.")
        yield Static(id="figure-texts", markup=False)

    def show(self, state: RunState, field: str) -> None:
        chosen = field != self.field or state is self._state  # by a person, or with the screen
        self._state = state
        self.field = field
        if not self.is_mounted:
            return
        values = state.history.values(field)
        over = f"  after {values[-1][0]:,.0f} episodes" if values else ""
        text = FIGURES[field]
        title = Content.assemble((text.title, "bold"), (over, ASIDE), "\n", text.meaning)
        self.query_one("#figure-title", Static).update(title)
        self.query_one("#figure-texts", Static).update(
            Content("\n").join(figure_texts(state, field))
        )
        of = (state.history, state.marks, field)
        self.query_one(Plot).show(of, lambda: figure_drawing(state, field), at_once=chosen)


def figure_texts(state: RunState, field: str) -> list[Content]:
    """What stands under the chart of a figure, the most important first: what has no room is cut."""
    text = FIGURES[field]
    lines = [
        Content.assemble(("healthy  ", ASIDE), text.healthy),
    ]
    if state.stats is not None:
        found = present_health(state, field)
        value = (figure_value(state.stats, field), "bold")
        words = (found.words, badge(found)[1])
        lines.insert(0, Content.assemble(("now      ", ASIDE), value, "  ", words))
    if field == "mean_return":
        known = "".join(
            f"   {line_of(name).dash} {name} {plain(value)}"
            for name, value in baselines(state).items()
        )
        lines.append(Content.styled(f"░ 95 % confidence of each batch's mean{known}", ASIDE))
    if state.marks:
        marks = " · ".join(
            f"{mark.episode:,} {one_line(mark.label)}" for mark in state.marks[-MOST_MARKS:]
        )
        lines.append(Content.assemble(("┊ ", "$accent"), (f"changes  {marks}", ASIDE)))
    return lines


class FigureWall(Widget):
    """The charted figures in small, as a picture of the whole run: one widget, whose parts are text."""

    DEFAULT_CSS = own_styles(__file__)
    _state: RunState | None = None

    def show(self, state: RunState) -> None:
        before = self._state
        self._state = state
        is_same = before is not None and state.history is before.history
        if before is None or not is_same or state.settings is not before.settings:
            self.refresh()

    def render(self) -> Content:
        state = self._state
        if state is None or state.stats is None:
            return Content("")
        charted = [
            field for field in shown_figures(state.config, state.settings) if FIGURES[field].charted
        ]
        width = (self.content_size.width - GAP * (COLUMNS - 1)) // COLUMNS
        height = self.content_size.height // math.ceil(len(charted) / COLUMNS)
        lines: list[Content] = []
        for at in range(0, len(charted), COLUMNS):
            row = [
                small_figure(state, field, width, height) for field in charted[at : at + COLUMNS]
            ]
            lines += [Content(" " * GAP).join(parts) for parts in zip(*row, strict=True)]
        return Content("\n").join(lines)


def small_figure(state: RunState, field: str, width: int, height: int) -> list[Content]:
    """A figure's name, value and health above its curve, in so many cells."""
    assert state.stats is not None
    value = figure_value(state.stats, field)
    words = (FIGURES[field].short, "bold"), "  ", value, "  ", badge(present_health(state, field))
    heading = Content.assemble(*words).truncate(width, ellipsis=True)
    values = [y for _, y, _ in samples(state, field)]
    bars = spark_rows(stretched(values, width), width, height - 1)
    return [
        heading.pad_right(width - heading.cell_length),
        *(Content.styled(bar, "$primary") for bar in bars),
    ]


def stretched(values: list[float], width: int) -> list[float]:
    """As many values as cells: means where there are more, repeated where there are fewer; none of none."""
    cuts = [len(values) * at // width for at in range(width + 1)]
    return (
        [fmean(values[low : max(high, low + 1)]) for low, high in pairwise(cuts)] if values else []
    )
