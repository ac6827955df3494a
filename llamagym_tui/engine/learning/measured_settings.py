"""Settings that follow from a run's first batch: from how long its episodes are, and how far their returns spread.

Short episodes keep PPO's own defaults: each return is then credited to every turn, undiscounted. Over long ones that is
noise: they get a discount, a lambda, rewards scaled by the spread of returns, and batches of several episodes' length
that do not wait until all episodes under way have ended. Why these numbers: docs/adr/0016-measured-settings.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from llamagym_tui.config import PPOConfig, Value
from llamagym_tui.engine.policy.trajectory import Trajectory

SHORT = 12
"""Turns on average up to which episodes are short."""
SHORTEST_HORIZON, LONGEST_HORIZON = 50, 1000
"""Steps that a discount looks ahead, whatever the first episodes are: good play may last longer, or shorter."""
LAMBDA = 0.95
LARGE_SPREAD = 10.0
"""Standard deviation of returns from which on those of short episodes are scaled, too."""
EPISODES, LARGEST_BATCH, ROUND = 8, 8192, 256
"""Lengths of an episode that a batch has; turns that it has at most; what it is a multiple of."""


class Measured(NamedTuple):
    value: Value
    reason: str
    """For people, with the value."""


def measured_settings(episodes: Sequence[Trajectory]) -> dict[str, Measured]:
    """The settings by their dotted names, from episodes that have ended, at least one."""
    turns = _mean([len(each.earlier) + len(each.turns) for each in episodes])
    steps = _mean([sum(turn.steps for turn in (*each.earlier, *each.turns)) for each in episodes])
    returns = [each.episode_return for each in episodes]
    spread = math.sqrt(_mean([(each - _mean(returns)) ** 2 for each in returns]))
    long, defaults = turns > SHORT, PPOConfig()
    horizon = min(max(steps, SHORTEST_HORIZON), LONGEST_HORIZON)
    gamma = round(1 - 1 / horizon, 3) if long else defaults.gamma
    lam = LAMBDA if long else defaults.lam
    is_scaled = long or spread >= LARGE_SPREAD
    several = math.ceil(EPISODES * turns / ROUND) * ROUND
    size = max(defaults.batch_size, min(several, LARGEST_BATCH)) if long else defaults.batch_size
    lasting = f"episodes have {turns:,.3g} turns on average"
    if steps != turns:
        lasting += f", of {steps:,.3g} steps"
    credited = "what comes long after an action says little about it" if long else "each turn is credited whole"
    scale = "running reward scale" if is_scaled else "reward scale 1"
    ends = "updates come in the middle of episodes" if long else "updates wait for the end of episodes"
    return {
        "ppo.gamma": Measured(gamma, f"discount {gamma:g}: {lasting}"),
        "ppo.lam": Measured(lam, f"lambda {lam:g}: {credited}"),
        "ppo.reward_scale": Measured(
            None if is_scaled else defaults.reward_scale, f"{scale}: returns spread by {spread:,.3g}"
        ),
        "ppo.batch_size": Measured(size, f"batch size {size:,}: {size / turns:,.3g} times an episode's turns"),
        "ppo.whole_episodes": Measured(not long, f"{ends}: a batch is {size / turns:,.3g} times as long"),
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
