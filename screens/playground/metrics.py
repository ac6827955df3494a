"""The metrics screen (key `m`): a list of the figures of an update, and the chart of the chosen one with its meaning,
its healthy range and a verdict."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import OptionList

from llamagym_tui.protocol.events import DepthMeasured
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.widgets.chart import (
    BOUND,
    Curve,
    Drawing,
    Level,
    Plot,
    baseline_levels,
)
from llamagym_tui.screens.widgets.choices import Choices
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted, OfRun
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import baselines, plain, share, share_bar
from llamagym_tui.screens.widgets.run_header import RunHeader
from llamagym_tui.settings import FIGURES, GROUPS, LEARNERS, RunConfig, UpdateStats, Value
from llamagym_tui.state.returns import margin
from llamagym_tui.state.run import RunState

SHARES = ("clip_fraction", "parse_failure_rate", "refusal_rate", "flat_groups")
MOST_MARKS = 3
"""Changes that are named under a chart."""
STILL = ("approx_kl", "clip_fraction", "grad_norm")
"""Figures that are 0 while only the critic is trained."""
OF_CRITIC = ("explained_variance", "value_loss")
OF_GROUPS = ("flat_groups",)


class Health(NamedTuple):
    ok: bool | None
    """None if there is nothing to judge by."""
    words: str

    @property
    def badge(self) -> tuple[str, str]:
        """The verdict in short, and its style."""
        if self.ok is None:
            return "·", ASIDE
        return ("ok", "$success") if self.ok else ("out", "bold $error")


class FigureList(Choices):
    HELP = "The figures of the last update. ok and out say whether they are healthy; ↑ and ↓ choose one to chart."


class MetricsScreen(OfRun, Fitted[None]):
    CSS_PATH = "metrics.tcss"
    BINDING_GROUP_TITLE = "Metrics"
    HELP = "The figures of the updates. docs/METRICS.md has the formulas."
    BINDINGS = [
        Binding("escape,m,q", "dismiss", "Back", tooltip="Back to the run.", id="metrics.back"),
        HELP_KEY,
    ]
    _field = "mean_return"
    """The figure that is shown, by its field of `UpdateStats`."""
    _listed: tuple[object, object] | None = None

    def body(self) -> ComposeResult:
        yield RunHeader(self._state)
        with Horizontal(id="metrics"):
            yield FigureList(id="figure-list", markup=False)
            with Vertical(id="figure-chart"):
                yield Words(id="figure-title")
                yield Plot("The line begins with the second update.")
                yield Words(id="figure-texts")

    def on_mount(self) -> None:
        self.query_one(FigureList).focus()

    def show(self, state: RunState) -> None:
        self._state = state
        self.query_one(RunHeader).show(state)
        self._show_chart()
        if self._listed == (state.history, state.settings):
            return
        self._listed = (state.history, state.settings)
        fields = shown_figures(state.config, state.settings)
        lines: dict[str, Content] = {}
        for field in fields:
            group = FIGURES[field].group
            lines.setdefault(group, Content.styled(group, "bold $primary"))
            lines[field] = _line(state, field)
        # Another learner has other figures.
        chosen = self._field if self._field in fields else fields[0]
        self.query_one(FigureList).show(lines, chosen, GROUPS)

    def _show_chart(self, *, at_once: bool = False) -> None:
        state, field = self._state, self._field
        self.query_one("#figure-title", Words).update(
            Content.assemble((FIGURES[field].title, "bold"), "\n", FIGURES[field].meaning)
        )
        texts = Content("\n").join(figure_texts(state, field))
        self.query_one("#figure-texts", Words).update(texts)
        of = (state.history, state.marks, field)
        self.query_one(Plot).show(of, lambda: figure_drawing(state, field), at_once=at_once)

    @on(OptionList.OptionHighlighted)
    def choose(self, event: OptionList.OptionHighlighted) -> None:
        if event.option.id is not None:
            self._field = event.option.id
            self._show_chart(at_once=True)


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


def _line(state: RunState, field: str) -> Content:
    name = f"{FIGURES[field].short:<12}"
    values = [value for _, value in state.history.values(field)]
    if state.stats is None or all(map(math.isnan, values)):
        return Content.styled(
            name, ASIDE
        )  # nobody has told it yet, or somebody else's trainer never will
    value = (f"{figure_value(state.stats, field):<10}", "bold")
    return Content.assemble((name, ASIDE), value, health(field, state.stats).badge)


def health(field: str, stats: UpdateStats) -> Health:
    """The verdict on a figure of an update by its healthy range."""
    value = float(getattr(stats, field))
    text = FIGURES[field]
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


def figure_drawing(state: RunState, field: str) -> Drawing | None:
    """The chart of a figure; None before it has two finite values."""
    points: list[tuple[float, float]] = []
    band: list[float] = []
    pairs = zip(state.history.values(field), state.history.samples, strict=True)
    for (episode, value), sample in pairs:
        if math.isfinite(value):
            half = margin(sample.stats.return_stderr) if field == "mean_return" else 0.0
            points.append((episode, value))
            band.append(half if math.isfinite(half) else 0.0)
    if len(points) < 2:
        return None
    known = baselines(state) if field == "mean_return" else {}
    bounds = (FIGURES[field].low, FIGURES[field].high)
    healthy = [Level(bound, BOUND) for bound in bounds if bound is not None]
    return Drawing(
        curves=[Curve(points)],
        band=band,
        levels=[*healthy, *baseline_levels(known)],
        marks=[(mark.episode, one_line(mark.label)) for mark in state.marks],
    )


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
        lines.append(Content.styled("shaded: the 95 % interval of each batch's mean", ASIDE))
    if field == "mean_return" and state.depth is not None:
        lines += depth_picture(state.depth)
    if state.marks:
        last = state.marks[-MOST_MARKS:]
        marks = " · ".join(f"{mark.episode:,} {one_line(mark.label)}" for mark in last)
        lines.append(Content.assemble(("┊ ", "$accent"), (f"changes  {marks}", ASIDE)))
    return lines


def depth_picture(depth: DepthMeasured) -> list[Content]:
    """Where in the model the game is seen: a bar for each number of layers, of the value that is foretold best."""
    best = max(
        range(len(depth.values)), key=lambda value: max(row[value] for row in depth.explained)
    )
    title = f"where in the model the {one_line(depth.values[best])} is seen"
    rows = [Content.styled(title, "bold")]
    for layers, explained in zip(depth.layers, depth.explained, strict=True):
        read = " ← read up to here" if layers == depth.read else ""
        label = (f"layer {layers:>3} ", ASIDE)
        rows.append(Content.assemble(label, share_bar(explained[best]), read))
    return rows
