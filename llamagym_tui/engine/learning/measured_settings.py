"""Settings that follow from a run's first batch: from the length of its episodes, and the spread of their returns.

Short episodes keep PPO's defaults (no discount, lambda 1). Long ones get a discount and lambda 0.95, a batch several
episodes long that may cut episodes off, and fewer environments, so each contributes a useful stretch. Where a single
episode is long there is a discount too: undiscounted, walking in circles costs nothing. Large returns are scaled. Why
these numbers: docs/adr/0016-measured-settings.md.
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
"""Times that a prompt comes in a first batch, on average, from which there is a bonus for what is seldom tried."""


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
        turns_per_s: the speed of play.
        has_critic: without a critic there is no lambda, and no episode is cut off.
    """
    all_turns = [[*each.earlier, *each.turns] for each in episodes]
    lengths = [len(episode) for episode in all_turns]
    turns = fmean(lengths)
    steps = fmean([sum(turn.steps for turn in episode) for episode in all_turns])
    returns = [each.episode_return for each in episodes]
    gamma = 1.0
    if max(lengths) > SHORT:
        gamma = round(1 - 1 / min(max(steps, SHORTEST_HORIZON), LONGEST_HORIZON), 3)
    is_large = max(pstdev(returns), abs(fmean(returns))) >= LARGE
    defaults = PPOConfig()
    lam = defaults.lam
    size = defaults.batch_size
    envs = RunConfig(agent="", run_dir="").n_envs
    kind = "short"
    if turns > SHORT:
        kind = "long"
        lam = LAMBDA if has_critic else lam
        several = math.ceil(EPISODES * turns / ROUND) * ROUND
        envs = FEW_ENVS
        size = max(FEW_ENVS * TOGETHER, min(several, LARGEST_BATCH))
    reason = f"episodes are {kind}"
    sized = f"batch size {size:,}: {size / turns:,.3g} times an episode's turns"
    if size > LONGEST_S * turns_per_s:
        size = max(SMALLEST_BATCH, int(LONGEST_S * turns_per_s / SMALLEST_BATCH) * SMALLEST_BATCH)
        sized = f"batch size {size:,}: as many turns as are played in some {LONGEST_S:.0f} s"
    ends = (
        "in the middle of episodes" if kind == "long" and has_critic else "at the end of episodes"
    )
    scaled = "running reward scale" if is_large else "reward scale 1"
    return {
        "ppo.gamma": Measured(
            gamma, f"discount {gamma:g}: episodes have {turns:,.3g} turns on average"
        ),
        "ppo.lam": Measured(lam, f"lambda {lam:g}: {reason if has_critic else 'no critic'}"),
        "ppo.reward_scale": Measured(
            None if is_large else defaults.reward_scale,
            f"{scaled}: returns are {fmean(returns):,.3g} on average and spread by {pstdev(returns):,.3g}",
        ),
        "ppo.batch_size": Measured(size, sized),
        "ppo.whole_episodes": Measured(
            kind == "short" or not has_critic, f"updates come {ends}: {reason}"
        ),
        "n_envs": Measured(envs, f"{envs} environments: {reason}"),
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
