"""Settings that follow from a run's first batch: from how long its episodes are, and how far their returns spread.

Short episodes keep PPO's own defaults: each return is then credited to every turn, undiscounted. Over long ones that is
noise: they get a discount, a lambda, and batches of several episodes' length that do not wait until all episodes under
way have ended. Where a single episode is long there is a discount too: undiscounted, walking in circles costs nothing.
Large returns are scaled. Why these numbers: docs/adr/0016-measured-settings.md.
"""

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from llamagym_tui.config import MEASURED, PPOConfig, Value
from llamagym_tui.engine.policy.trajectory import Trajectory

SHORT = 12
"""Turns up to which an episode is short, and up to which all are, on average."""
SHORTEST_HORIZON, LONGEST_HORIZON = 50, 1000
"""Steps that a discount looks ahead, whatever the first episodes are: good play may last longer, or shorter."""
LAMBDA = 0.95
LARGE = 10.0
"""Mean of returns, or standard deviation, from which on rewards are scaled."""
EPISODES, LARGEST_BATCH, ROUND = 8, 8192, 256
"""Lengths of an episode that a batch has; turns that it has at most; what it is a multiple of."""


class Measured(NamedTuple):
    value: Value
    reason: str
    """For people, with the value."""


def measured_settings(episodes: Sequence[Trajectory]) -> dict[str, Measured]:
    """The settings by their dotted names, from episodes that have ended, at least one."""
    lengths = [len(each.earlier) + len(each.turns) for each in episodes]
    turns, longest = fmean(lengths), max(lengths)
    steps = fmean([sum(turn.steps for turn in (*each.earlier, *each.turns)) for each in episodes])
    returns = [each.episode_return for each in episodes]
    mean, spread = fmean(returns), pstdev(returns)
    long, defaults = turns > SHORT, PPOConfig()
    horizon = min(max(steps, SHORTEST_HORIZON), LONGEST_HORIZON)
    gamma = round(1 - 1 / horizon, 3) if longest > SHORT else defaults.gamma
    lam = LAMBDA if long else defaults.lam
    is_scaled = max(spread, abs(mean)) >= LARGE
    several = math.ceil(EPISODES * turns / ROUND) * ROUND
    size = max(defaults.batch_size, min(several, LARGEST_BATCH)) if long else defaults.batch_size
    in_steps = f", of {steps:,.3g} steps" if steps != turns else ""
    up_to = f", up to {longest:,}" if gamma != 1 else ""
    credited = (
        "what comes long after an action says little about it"
        if long
        else "each turn is credited whole"
    )
    scale = "running reward scale" if is_scaled else "reward scale 1"
    ends = (
        "updates may come in the middle of episodes"
        if long
        else "updates wait for the end of episodes"
    )
    found: list[tuple[Value, str]] = [
        (
            gamma,
            f"discount {gamma:g}: episodes have {turns:,.3g} turns on average{up_to}{in_steps}",
        ),
        (lam, f"lambda {lam:g}: {credited}"),
        (
            None if is_scaled else defaults.reward_scale,
            f"{scale}: returns are {mean:,.3g} on average and spread by {spread:,.3g}",
        ),
        (size, f"batch size {size:,}: {size / turns:,.3g} times an episode's turns"),
        (not long, f"{ends}: they are {'long' if long else 'short'}"),
    ]
    return {name: Measured(*each) for name, each in zip(MEASURED, found, strict=True)}
