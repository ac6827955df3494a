"""Figures of the rollouts of a step, and orders in which they are listed."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from llamagym_tui.rollouts.rollout import Entry

ORDERS = ("as written", "best first", "worst first", "longest first", "changed most")


class StepFigures(NamedTuple):
    """What a step's rollouts earned."""

    step: int | None
    """None: the files have no steps, or it is of all of them."""
    rollouts: int
    mean: float | None
    """Mean reward; None: the files have none."""
    spread: float | None
    """Standard deviation of the rewards."""
    groups: int
    """Groups of two or more."""
    alike: float | None
    """Share of these groups whose rewards are all equal: an advantage within the group is zero, and nothing is
    learnt."""
    length: float
    """Mean length, as of `Entry`."""


def step_figures(step: int | None, entries: Sequence[Entry]) -> StepFigures:
    """The figures of some rollouts, at least one."""
    rewards = [each.reward for each in entries if each.reward is not None]
    by_step = defaultdict(list)
    for each in entries:
        by_step[each.step].append(each)
    groups = [
        group for of_step in by_step.values() for group in _rewards_by_group(of_step).values()
    ]
    compared = [each for each in groups if len(each) > 1]
    alike = sum(min(each) == max(each) for each in compared)
    return StepFigures(
        step=step,
        rollouts=len(entries),
        mean=fmean(rewards) if rewards else None,
        spread=pstdev(rewards) if rewards else None,
        groups=len(compared),
        alike=alike / len(compared) if compared else None,
        length=fmean(each.length for each in entries),
    )


def ordered(order: str, entries: Sequence[Entry], before: Sequence[Entry]) -> list[Entry]:
    """Entries in one of `ORDERS`; those without a reward come last where it decides.

    Args:
        order: one of `ORDERS`. "changed most": the groups whose mean reward differs most from that in `before`.
        entries: rollouts of a step.
        before: those of the step before it.
    """
    match order:
        case "best first":
            return sorted(entries, key=lambda each: (each.reward is None, -(each.reward or 0.0)))
        case "worst first":
            return sorted(entries, key=lambda each: (each.reward is None, each.reward or 0.0))
        case "longest first":
            return sorted(entries, key=lambda each: -each.length)
        case "changed most":
            now, then = _rewards_by_group(entries), _rewards_by_group(before)
            changes = {
                group: abs(fmean(rewards) - fmean(then[group]))
                for group, rewards in now.items()
                if group in then
            }
            return sorted(entries, key=lambda each: (-changes.get(each.group, -1.0), each.group))
    return list(entries)


def _rewards_by_group(entries: Iterable[Entry]) -> dict[int, list[float]]:
    rewards = defaultdict(list)
    for each in entries:
        if each.reward is not None:
            rewards[each.group].append(each.reward)
    return rewards
