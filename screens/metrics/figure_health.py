"""Whether a figure of a PPO update is healthy, in words: a verdict by its range, or by the run so far."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from llamagym_tui.config import FIGURES, GROUPS, LEARNERS, RunConfig, UpdateStats, Value

LARGEST_PEAK = 10.0
"""Times its median over the run that a gradient norm may be."""
LARGEST_RISE = 0.5
"""Nats a token that entropy may rise above its start."""

OF_ENDED = ("mean_return",)
"""Figures of the episodes that ended in a batch, which may be none where it cuts them off."""
STILL = ("approx_kl", "clip_fraction", "grad_norm")
"""Figures that are 0 for a good reason while the critic alone is trained."""

OF_CRITIC = ("explained_variance", "value_loss")
OF_GROUPS = ("flat_groups",)


class Health(NamedTuple):
    ok: bool | None
    """None: there is nothing to judge by."""
    words: str


def shown_figures(config: RunConfig, changes: Mapping[str, Value]) -> tuple[str, ...]:
    """Figures that mean something under a run's settings, by their groups, the most telling of each first.

    A critic has some of its own, as have learners by groups.

    Args:
        config: as the run began.
        changes: settings that were changed since, by their dotted names.
    """
    learner = LEARNERS[changes.get("ppo.learner", config.ppo.learner)]  # type: ignore[index]
    hidden: tuple[str, ...] = ()
    if not learner.has_critic:
        hidden += OF_CRITIC
    if learner.groups is None:
        hidden += OF_GROUPS
    shown = (field for field in FIGURES if field not in hidden)
    return tuple(sorted(shown, key=lambda field: GROUPS.index(FIGURES[field].group)))


def health(field: str, stats: UpdateStats, past: Sequence[float] = ()) -> Health:
    """Whether a figure is in its healthy range; `past` has it over the run so far, this update included."""
    value = float(getattr(stats, field))
    text = FIGURES[field]
    if stats.lr == 0 and field in STILL:
        return Health(None, "the critic alone is trained")
    if field in OF_ENDED and not stats.episodes:
        return Health(None, "no episode ended in this batch")
    high = _bound_by_past(field, text.high, past)
    if value != value:
        return Health(False, "not a number")
    if text.low is None and high is None:
        return Health(None, "no healthy range defined")
    if text.low is not None and value < text.low:
        return Health(False, "below its healthy range")
    if high is not None and value > high:
        return Health(False, "above its healthy range")
    return Health(True, "in its healthy range")


def _bound_by_past(field: str, high: float | None, past: Sequence[float]) -> float | None:
    """The largest healthy value, which follows from the run itself for some figures."""
    if field == "entropy" and past:
        return past[0] + LARGEST_RISE
    if field == "grad_norm" and (moved := [value for value in past if value > 0]):
        return LARGEST_PEAK * median(moved)
    return high
