"""Charts of the figures of a run: one large with its meaning, and all the charted ones in small."""

import math
from statistics import fmean

from textual.app import ComposeResult
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.widgets import Sparkline, Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import margin
from llamagym_tui.screens.metrics.figure_texts import CHARTED, FIGURES, OF_ENDED, Health, health
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.screens.widgets.numbers import baselines, plain, share
from llamagym_tui.screens.widgets.plot import BandPoint, Curve, Drawing, Level, Plot, baseline_levels
from llamagym_tui.state.run import RunState

SHARES = ("clip_fraction", "parse_failure_rate")
MOST_MARKS = 3
"""Changes that are named under a chart."""
ASIDE = "$foreground 60%"


def figure_value(field: str, value: float) -> str:
    if not math.isfinite(value):
        return "none" if field in OF_ENDED else "no number"
    return share(value) if field in SHARES else plain(value)


def present_health(state: RunState, field: str) -> Health:
    """Whether a figure of the last update is healthy."""
    assert state.stats is not None
    return health(field, state.stats, [value for _, value in state.history.values(field)])


def badge(found: Health) -> tuple[str, str]:
    """A judgement in short, and its style."""
    if found.ok is None:
        return "·", ASIDE
    return ("ok", "$success") if found.ok else ("out", "bold $error")


def samples(state: RunState, field: str) -> list[BandPoint]:
    """A figure over the run, with half the 95 % confidence interval where there is one; finite values alone."""
    halves = [
        margin(sample.stats.return_std / math.sqrt(max(sample.stats.episodes - 1, 1)))
        if field == "mean_return" and math.isfinite(sample.stats.return_std)
        else 0.0
        for sample in state.history.samples
    ]
    values = zip(state.history.values(field), halves, strict=True)
    return [BandPoint(episode, value, half) for (episode, value), half in values if math.isfinite(value)]


def figure_drawing(state: RunState, field: str) -> Drawing | None:
    """The chart of a figure; None: a line needs two updates."""
    points, text = samples(state, field), FIGURES[field]
    if len(points) < 2:
        return None
    known = baselines(state) if field == "mean_return" else {}
    low, high = min(y - half for _, y, half in points), max(y + half for _, y, half in points)
    span = high - low or abs(high) or 1.0
    # A bound far off would flatten the line.
    near = [bound for bound in (text.low, text.high) if bound is not None and low - span <= bound <= high + span]
    return Drawing(
        [Curve([(x, y) for x, y, _ in points])],
        points,
        [*(Level(bound, "success") for bound in near), *baseline_levels(known)],
        [mark.episode for mark in state.marks],
        [low, high, *near, *known.values()],
    )


class FigureChart(Vertical):
    """One figure: its chart, what it means, what is healthy, and whether it is."""

    DEFAULT_CSS = "FigureChart { height: 1fr; padding: 0 1; & > Static { height: auto; max-height: 50%; } }"

    def __init__(self, state: RunState, *, id: str) -> None:
        """The chart of mean return, until another figure is chosen."""
        super().__init__(id=id)
        self._state, self.field = state, CHARTED[0]

    def compose(self) -> ComposeResult:
        yield Static(id="figure-title", markup=False)
        yield Plot("The line begins with the second update.")
        yield Static(id="figure-texts", markup=False)

    def show(self, state: RunState, field: str) -> None:
        chosen = field != self.field or state is self._state  # by a person, or with the screen
        self._state, self.field = state, field
        if not self.is_mounted:
            return
        values = state.history.values(field)
        over = f"  over {values[-1][0]:,.0f} episodes" if values else ""
        title = Content.assemble((FIGURES[field].title, "bold"), (over, ASIDE))
        self.query_one("#figure-title", Static).update(title)
        self.query_one("#figure-texts", Static).update(Content("\n").join(figure_texts(state, field)))
        of = (state.history, state.marks, field)
        self.query_one(Plot).show(of, lambda: figure_drawing(state, field), at_once=chosen)


def figure_texts(state: RunState, field: str) -> list[Content]:
    """What stands under the chart of a figure, the most important first: what has no room is cut."""
    text = FIGURES[field]
    lines = [Content.assemble(("means    ", ASIDE), text.meaning), Content.assemble(("healthy  ", ASIDE), text.healthy)]
    if state.stats is not None:
        found = present_health(state, field)
        value = figure_value(field, float(getattr(state.stats, field)))
        style = badge(found)[1]
        lines.insert(0, Content.assemble(("now      ", ASIDE), (value, "bold"), "  ", (found.words, style)))
    if field == "mean_return":
        known = "".join(f"   ╌ {name} {plain(value)}" for name, value in baselines(state).items())
        lines.append(Content.styled(f"░ 95 % confidence of each batch's mean{known}", ASIDE))
    if state.marks:
        marks = " · ".join(f"{mark.episode:,} {one_line(mark.label)}" for mark in state.marks[-MOST_MARKS:])
        lines.append(Content.assemble(("┊ ", "$accent"), (f"changes  {marks}", ASIDE)))
    return lines


class SmallFigure(Vertical):
    """A figure's name, value and health above its line."""

    def __init__(self, field: str) -> None:
        super().__init__()
        self._field = field

    def compose(self) -> ComposeResult:
        yield Static(FIGURES[self._field].short, markup=False)
        yield Sparkline(summary_function=fmean)

    def show(self, state: RunState) -> None:
        assert state.stats is not None
        value = figure_value(self._field, float(getattr(state.stats, self._field)))
        heading = (FIGURES[self._field].short, "bold"), "  ", value, "  ", badge(present_health(state, self._field))
        self.query_one(Static).update(Content.assemble(*heading))
        self.query_one(Sparkline).data = [point.y for point in samples(state, self._field)]


class FigureWall(Grid):
    """The charted figures in small, as a picture of the whole run."""

    DEFAULT_CSS = own_styles(__file__)

    def __init__(self, *, id: str) -> None:
        super().__init__(*map(SmallFigure, CHARTED), id=id)
        self._state: RunState | None = None
        self._shown: object = None

    def show(self, state: RunState) -> None:
        self._state = state
        self._draw()

    def on_resize(self) -> None:
        """A larger terminal may have room for it now."""
        self._draw()

    def _draw(self) -> None:
        state = self._state
        if state is not None and state.stats is not None and self.size and state.history is not self._shown:
            self._shown = state.history
            for small in self.query(SmallFigure):
                small.show(state)
