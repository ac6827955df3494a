"""The chart of a figure, with its meaning, its healthy range and a verdict."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.chart import (
    BOUND,
    Curve,
    Drawing,
    Level,
    Plot,
    baseline_levels,
    line_of,
)
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import baselines, plain, share
from llamagym_tui.settings import FIGURES, GROUPS, LEARNERS, RunConfig, UpdateStats, Value
from llamagym_tui.state.returns import margin
from llamagym_tui.state.run import RunState

SHARES = ("clip_fraction", "parse_failure_rate", "refusal_rate", "flat_groups")
MOST_MARKS = 3
"""Changes that are named under a chart."""
OF_ENDED = ("mean_return",)
"""Figures of the episodes that ended in a batch."""
STILL = ("approx_kl", "clip_fraction", "grad_norm")
"""Figures that are 0 while only the critic is trained."""
OF_CRITIC = ("explained_variance", "value_loss")
OF_GROUPS = ("flat_groups",)


class Health(NamedTuple):
    ok: bool | None
    """None: there is nothing to judge by."""
    words: str

    @property
    def badge(self) -> tuple[str, str]:
        """The verdict in short, and its style."""
        if self.ok is None:
            return "·", ASIDE
        return ("ok", "$success") if self.ok else ("out", "bold $error")


def shown_figures(config: RunConfig, changes: Mapping[str, Value]) -> tuple[str, ...]:
    """The figures that mean something for a run's learner, by their groups.

    Args:
        changes: settings that were changed since the run began, by their dotted names.
    """
    learner = LEARNERS[changes.get("ppo.learner", config.ppo.learner)]  # type: ignore[index]
    hidden: tuple[str, ...] = () if learner.has_critic else OF_CRITIC
    if learner.groups is None:
        hidden += OF_GROUPS
    shown = (field for field in FIGURES if field not in hidden)
    return tuple(sorted(shown, key=lambda field: GROUPS.index(FIGURES[field].group)))


def health(field: str, stats: UpdateStats) -> Health:
    """The verdict on a figure of an update by its healthy range."""
    value, text = float(getattr(stats, field)), FIGURES[field]
    if stats.lr == 0 and field in STILL:
        return Health(None, "the critic alone is trained")
    if field == "mean_return" and not stats.episodes:
        return Health(None, "no episode ended in this batch")
    if math.isnan(value):
        return Health(False, "not a number")
    if text.low is None and text.high is None:
        return Health(None, "no healthy range")
    if text.low is not None and value < text.low:
        return Health(False, "below its healthy range")
    if text.high is not None and value > text.high:
        return Health(False, "above its healthy range")
    return Health(True, "in its healthy range")


def figure_value(stats: UpdateStats, field: str) -> str:
    measured = getattr(stats, field)
    if isinstance(measured, int):
        return f"{measured:,}"
    value = float(measured)
    if not math.isfinite(value):
        return "none" if field == "mean_return" else "no number"
    if field in SHARES:
        return share(value)
    return plain(value, 0.0 if field == "lr" else 1e-6)


def samples(state: RunState, field: str) -> list[tuple[float, float, float]]:
    """(episode, value, half the 95 % interval) of each update, finite values alone."""
    found: list[tuple[float, float, float]] = []
    pairs = zip(state.history.values(field), state.history.samples, strict=True)
    for (episode, value), sample in pairs:
        half = margin(sample.stats.return_stderr) if field == "mean_return" else 0.0
        if math.isfinite(value):
            found.append((episode, value, half if math.isfinite(half) else 0.0))
    return found


def figure_drawing(state: RunState, field: str) -> Drawing | None:
    """The chart of a figure; None before the second update."""
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
        curves=[Curve([(x, y) for x, y, _ in points])],
        band=[half for *_, half in points],
        levels=[*(Level(bound, BOUND) for bound in near), *baseline_levels(known)],
        marks=[mark.episode for mark in state.marks],
        fitted=[low, high, *near, *known.values()],
    )


class FigureChart(Vertical):
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
        is_chosen = field != self.field or state is self._state
        self._state = state
        self.field = field
        if not self.is_mounted:
            return
        values = state.history.values(field)
        over = f"  after {values[-1][0]:,.0f} episodes" if values else ""
        text = FIGURES[field]
        title = Content.assemble((text.title, "bold"), (over, ASIDE), "\n", text.meaning)
        self.query_one("#figure-title", Static).update(title)
        lines = Content("\n").join(figure_texts(state, field))
        self.query_one("#figure-texts", Static).update(lines)
        of = (state.history, state.marks, field)
        self.query_one(Plot).show(of, lambda: figure_drawing(state, field), at_once=is_chosen)


def figure_texts(state: RunState, field: str) -> list[Content]:
    """The lines under the chart of a figure, the most important first."""
    lines = []
    if state.stats is not None:
        found = health(field, state.stats)
        value = (figure_value(state.stats, field), "bold")
        words = (found.words, found.badge[1])
        lines.append(Content.assemble(("now      ", ASIDE), value, "  ", words))
    lines.append(Content.assemble(("healthy  ", ASIDE), FIGURES[field].healthy))
    if field == "mean_return":
        known = "".join(
            f"   {line_of(name).dash} {name} {plain(value)}"
            for name, value in baselines(state).items()
        )
        lines.append(Content.styled(f"░ 95 % interval of each batch's mean{known}", ASIDE))
    if state.marks:
        last = state.marks[-MOST_MARKS:]
        marks = " · ".join(f"{mark.episode:,} {one_line(mark.label)}" for mark in last)
        lines.append(Content.assemble(("┊ ", "$accent"), (f"changes  {marks}", ASIDE)))
    return lines
