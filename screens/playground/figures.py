"""The run in figures: mean return, and what the last PPO update measured. `docs/METRICS.md` explains each."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from textual.content import Content

from llamagym_tui.config import FIGURES, UpdateStats
from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import counted, smoothing_window
from llamagym_tui.screens.playground.panes import ALL
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy
from llamagym_tui.screens.widgets.numbers import baselines, plain, share, spark
from llamagym_tui.screens.widgets.run_header import StateText
from llamagym_tui.state.run import RunState

RETURN = "return ±95%"
"""The name of a mean return, with what its ± is."""
PPO = (
    "approx_kl",
    "kl_ref",
    "entropy",
    "action_entropy",
    "clip_fraction",
    "explained_variance",
    "parse_failure_rate",
    "value_loss",
    "policy_loss",
    "grad_norm",
    "first_ratio",
    "lr",
    "turns",
)
"""Figures of an update that stand beside the game, in this order."""
SHOWN: dict[str, Callable[[float], str]] = {
    "clip_fraction": share,
    "parse_failure_rate": share,
    "refusal_rate": share,
    "turns": "{:,.0f}".format,
    "lr": partial(plain, least=0.0),
}
"""How a figure is written, where not as all others."""
NAME = "$aside"
VALUE = "bold"
LEAST_CURVE = 8
"""Cells of the curve in the strip; with fewer there is none."""


class Figure(NamedTuple):
    name: str
    value: str


def ppo_figures(stats: UpdateStats, *, few: bool) -> list[Figure]:
    """What an update measured, the most telling first; few: the one that explains itself."""
    fields: tuple[str, ...] = ("parse_failure_rate",) if few else PPO
    if stats.refusal_rate:  # few environments refuse anything
        after = fields.index("parse_failure_rate") + 1
        fields = (*fields[:after], "refusal_rate", *fields[after:])
    return [
        Figure(FIGURES[field].short, SHOWN.get(field, plain)(getattr(stats, field)))
        for field in fields
    ]


def recent_text(state: RunState) -> str:
    """Mean return under the present mode and prompt."""
    return "none yet" if state.recent_mean is None else state.recent_mean.text


def return_name(state: RunState) -> str:
    """The name of that mean return, with what its ± is where there is one."""
    return RETURN if state.recent_mean is not None and state.recent_mean.episodes > 1 else "return"


def why_no_figures(state: RunState) -> str:
    """What stands in place of an update's figures: when the first update comes."""
    if state.updates:
        return f"the figures of update {state.updates:,} are not kept"
    if not state.live:
        return "no update was made"
    if state.mode == "inference":
        return "no update: nothing is trained"
    if state.phase == "updating":
        return "the first update is under way"
    played, wanted = state.batch_progress
    return f"first update after {wanted:,} turns ({played:,} so far)"


class FirstSight(StateText):
    """How the agent plays, in its own words: what it earns, and how often it acts as is best."""

    DEFAULT_CSS = (
        "FirstSight { display: none; height: auto; max-height: 2; &.-known { display: block; } }"
    )

    def show(self, state: RunState) -> None:
        before = self.state
        self.state = state
        self.set_class(bool(state.described), "-known")
        if any(
            getattr(state, name) is not getattr(before, name)
            for name in ("described", "mapped", "film", "updates", "run", "settings")
        ):
            width = self.content_size.width
            text = self.content_at(width)
            if not text.is_same(self._painted):
                is_as_high = width > 0 and len(text.wrap(width)) == self.content_size.height
                self.refresh(layout=not is_as_high)

    def content_at(self, width: int) -> Content:
        return Content(first_sight(self.state))


def first_sight(state: RunState) -> str:
    """How the agent of a run plays, in one sentence; empty: not known yet."""
    layout, mapped = state.map_layout, state.mapped
    played = MappedPolicy(layout, mapped).words if layout is not None and mapped is not None else ""
    if layout is not None and played and len(state.film) > 1:
        played += _gained(layout, state.film)
    if played and mapped is not None and not state.map_is_present:
        played += f" ({age(state.updates - mapped.update)})"
    return "; ".join(filter(None, (one_line(state.described), played)))


def age(updates: int) -> str:
    """How long ago a map was computed, in updates; fewer than none: of what was taken back since."""
    if updates < 0:
        return "before the roll back"
    return f"{counted(updates, 'update')} ago" if updates else "now"


def _gained(layout: PolicyMapLaidOut, film: Sequence[PolicyMapped]) -> str:
    """In how many states more, or fewer, it acts as is best than by the run's first map."""
    first = MappedPolicy(layout, film[0]).count.agreeing
    last = MappedPolicy(layout, film[-1]).count.agreeing
    if last == first:
        return ""
    return f" {'▲' if last > first else '▼'} {abs(last - first):,}"


class FiguresColumn(StateText):
    """Figures in two columns, for the side of a wide terminal."""

    def content_at(self, width: int) -> Content:
        """Mean return over the whole width, PPO's figures two in a row; of those only one, where few are wanted."""
        state = self.state
        mean = state.recent_mean
        over = f" over {mean.episodes:,}" if mean else ""
        rows = [
            Content.assemble(
                (f"{return_name(state):<12}", NAME), (recent_text(state), VALUE), (over, NAME)
            )
        ]
        if state.dropped:
            rows.append(
                Content.assemble(
                    (f"{'dropped':<12}", NAME), (f"{state.dropped:,}", VALUE), (" failed", NAME)
                )
            )
        if state.stats is None:
            return Content("\n").join([*rows, Content.styled(why_no_figures(state), NAME)])
        rows.insert(0, Content.assemble((f"{'update':<12}", NAME), (f"{state.updates:,}", VALUE)))
        figures = ppo_figures(state.stats, few=not self.screen.has_class(ALL))
        if len(figures) == 1:
            return Content("\n").join([*rows, self._cell(figures[0], width)])
        half = width // 2
        for at in range(0, len(figures), 2):
            row = self._cell(figures[at], half)
            if at + 1 < len(figures):
                row += self._cell(figures[at + 1], width - half)
            rows.append(row)
        return Content("\n").join(rows)

    @staticmethod
    def _cell(figure: Figure, width: int) -> Content:
        return Content.assemble((f"{figure.name:<12}", NAME), (figure.value, VALUE)).pad_right(
            max(0, width - 12 - len(figure.value))
        )


class FigureCurves(StateText):
    """All figures below each other with the curve of each over the run's updates, for a column of their own."""

    DEFAULT_CSS = "FigureCurves { height: auto; }"

    def show(self, state: RunState) -> None:
        before = self.state
        super().show(state)
        if (state.stats is None) != (before.stats is None):
            self.refresh(layout=True)

    def content_at(self, width: int) -> Content:
        state = self.state
        mean = Content.assemble((f"{return_name(state):<12}", NAME), (recent_text(state), VALUE))
        if state.dropped:
            mean += Content.styled(f"   {state.dropped:,} dropped", NAME)
        if state.stats is None:
            return Content("\n").join([mean, Content.styled(why_no_figures(state), NAME)])
        rows = [mean]
        for field in PPO:
            value = SHOWN.get(field, plain)(getattr(state.stats, field))
            bars = spark([y for _, y in state.history.values(field)], max(0, width - 22))
            cells = (f"{FIGURES[field].short:<12}", NAME), (f"{value:<10}", VALUE)
            rows.append(Content.assemble(*cells, (bars, "$primary")))
        return Content("\n").join(rows)


class FiguresStrip(StateText):
    """Mean return with its curve, and as many figures as fit in two rows, for a narrow terminal."""

    def content_at(self, width: int) -> Content:
        return Content("\n").join([self._curve(width), *self._rows(width)])

    def _curve(self, width: int) -> Content:
        state = self.state
        known, mean = baselines(state), recent_text(state)
        tail = Content.styled(
            "".join(f" {name} {plain(value)}" for name, value in known.items()), NAME
        )
        room = width - tail.cell_length - len(mean) - 2
        name = return_name(state) if room >= len(RETURN) + LEAST_CURVE else "return"
        head = Content.assemble((f"{name} ", NAME), (mean, VALUE), " ")
        room -= len(name)
        points = state.returns.trailing(smoothing_window(state.returns.episodes))
        if room < LEAST_CURVE or not points:
            return head + tail
        bars = spark([point.mean_return for point in points], room, known.values())
        return Content.assemble(head, (f"{bars:<{room}}", "$primary"), tail)

    def _rows(self, width: int) -> list[Content]:
        state = self.state
        figures = [Figure("dropped", f"{state.dropped:,}")] if state.dropped else []
        if state.stats is not None:
            measured = ppo_figures(state.stats, few=not self.screen.has_class(ALL))
            figures = [Figure("update", f"{state.updates:,}"), *figures, *measured]
        cells = [
            Content.assemble((f"{figure.name} ", NAME), (figure.value, VALUE)) for figure in figures
        ]
        if state.stats is None:
            cells.append(Content.styled(why_no_figures(state), NAME))
        rows = [Content("")]
        for cell in cells:
            gap = "   " if rows[-1] else ""
            if rows[-1].cell_length + len(gap) + cell.cell_length > width:
                if len(rows) == 2:
                    break
                rows.append(Content(""))
                gap = ""
            rows[-1] = rows[-1] + gap + cell
        return rows
