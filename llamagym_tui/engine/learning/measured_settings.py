"""Settings that follow from a run's first batch: from how long its episodes are, and how far their returns spread.

Short episodes keep PPO's own defaults: each return is then credited to every turn, undiscounted. Over long ones that is
noise: they get a discount, a lambda, and batches of several episodes' length that do not wait until all episodes under
way have ended, from fewer environments, so that what is seen of each is long enough to learn from. Where a single
episode is long there is a discount too: undiscounted, walking in circles costs nothing.
Large returns are scaled. Why these numbers: docs/adr/0016-measured-settings.md.
"""

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.settings import PPOConfig, RunConfig, Value

SHORT = 12
"""Turns up to which an episode is short, and up to which all are, on average."""
SHORTEST_HORIZON = 50
"""Steps that a discount looks ahead at least, as good play may last longer than the first episodes."""
LONGEST_HORIZON = 1000
"""Steps that it looks ahead at most, as good play may be shorter."""
LAMBDA = 0.95
"""The lambda where episodes are long."""
LARGE = 10.0
"""Mean of returns, or standard deviation, from which on rewards are scaled."""
EPISODES = 8
"""Lengths of an episode that a batch has."""
FEW_ENVS = 64
"""Environments where episodes are long."""
TOGETHER = 32
"""Turns in a row that a batch has of each of these, at least: with few, advantages are mostly the critic's guesses."""
LARGEST_BATCH = 8192
"""Turns that it has at most."""
LONGEST_S = 90.0
"""Seconds in which a batch should be played."""
SMALLEST_BATCH = 64
"""Turns that it has however slow the play is, and of which it is a multiple then."""
ROUND = 256
"""Number of turns of which it is a multiple."""


OFTEN = 3.0
"""Times that a prompt comes in a first batch, on average, from which on what is seldom tried is told apart."""


class Measured(NamedTuple):
    value: Value
    reason: str
    """For people, with the value."""


def measured_settings(
    episodes: Sequence[Trajectory], turns_per_s: float = math.inf, *, has_critic: bool = True
) -> dict[str, Measured]:
    """The settings by their dotted names.

    Args:
        episodes: those of the first batch, at least one; one that was cut off counts as it is.
        turns_per_s: how fast they were played.
        has_critic: whether returns are foreseen; without a critic there is no lambda, and no episode is cut off.
    """
    all_turns = [[*each.earlier, *each.turns] for each in episodes]
    lengths = [len(episode) for episode in all_turns]
    longest = max(lengths)
    turns = fmean(lengths)
    steps = fmean([sum(turn.steps for turn in episode) for episode in all_turns])
    returns = [each.episode_return for each in episodes]
    mean = fmean(returns)
    spread = pstdev(returns)
    defaults = PPOConfig()
    is_long = turns > SHORT
    is_scaled = max(spread, abs(mean)) >= LARGE

    gamma = defaults.gamma
    if longest > SHORT:
        horizon = min(max(steps, SHORTEST_HORIZON), LONGEST_HORIZON)
        gamma = round(1 - 1 / horizon, 3)
    discounted = f"discount {gamma:g}: episodes have {turns:,.3g} turns on average"
    if gamma != 1:
        discounted += f", up to {longest:,}"
    if steps != turns:
        discounted += f", of {steps:,.3g} steps"

    if is_long:
        lam = LAMBDA
        several = math.ceil(EPISODES * turns / ROUND) * ROUND
        size = max(FEW_ENVS * TOGETHER, min(several, LARGEST_BATCH))
        envs = FEW_ENVS
        stepped = f"{FEW_ENVS} environments: each plays many turns of a batch"
        credited = f"lambda {lam:g}: what comes long after an action says little about it"
        ends = "updates may come in the middle of episodes: they are long"
    else:
        lam = defaults.lam
        size = defaults.batch_size
        envs = RunConfig(agent="", run_dir="").n_envs
        stepped = f"{envs} environments: episodes are short"
        credited = f"lambda {lam:g}: each turn is credited whole"
        ends = "updates wait for the end of episodes: they are short"
    if not has_critic:
        lam = defaults.lam
        credited = f"lambda {lam:g}: there is no critic"
        ends = (
            "updates wait for the end of episodes: without a critic a return is known there alone"
        )

    batch = Measured(size, f"batch size {size:,}: {size / turns:,.3g} times an episode's turns")
    if size > LONGEST_S * turns_per_s:
        batch = batch_in_time(turns_per_s)
    scale = None if is_scaled else defaults.reward_scale
    scaled = "running reward scale" if is_scaled else "reward scale 1"
    return {
        "ppo.gamma": Measured(gamma, discounted),
        "ppo.lam": Measured(lam, credited),
        "ppo.reward_scale": Measured(
            scale,
            f"{scaled}: returns are {mean:,.3g} on average and spread by {spread:,.3g}",
        ),
        "ppo.batch_size": batch,
        "ppo.whole_episodes": Measured(not is_long or not has_critic, ends),
        "n_envs": Measured(envs, stepped),
    }


def measured_novelty(episodes: Sequence[Trajectory], coef: float) -> Measured:
    """The weight of the bonus for what is seldom tried: `coef` where prompts come again and again, else 0.

    Where hardly a prompt repeats, all that a policy does is seldom tried, and a bonus only holds it near to random.
    """
    segments = [segment for episode in episodes for segment in episode.segments]
    prompts = [
        (segment.prefix, tuple(segment.ids[: turn.start]))
        for segment in segments
        for turn in segment.turns
    ]
    times = len(prompts) / max(len(set(prompts)), 1)
    met = f"a prompt came {times:.2g} times in the first batch"
    if times >= OFTEN:
        return Measured(coef, f"a bonus of {coef:g} for what is seldom tried: {met}")
    return Measured(0.0, f"no bonus for what is seldom tried: {met}")


def batch_in_time(turns_per_s: float) -> Measured:
    """The size of a batch that is played in `LONGEST_S`, or the smallest one."""
    size = max(SMALLEST_BATCH, int(LONGEST_S * turns_per_s / SMALLEST_BATCH) * SMALLEST_BATCH)
    return Measured(
        size, f"batch size {size:,}: as many turns as are played in some {LONGEST_S:.0f} s"
    )
