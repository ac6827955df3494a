"""GiGPO: episodes are compared with those that began alike, and turns with those that had the same observation.

A_t = (R - mean(R)) / std(R) + (G_t - mean(G)) / std(G): R the return of the whole episode, compared with the episodes
whose first observation was the same; G_t the return from turn t on, compared with the turns of the batch that had the
observation of t, its anchor. Source: arXiv:2505.10978, eq. 3, 6, 7 and 8, with omega 1. It differs from the paper in
that groups are of equal observations in the whole batch, as many as there are, and not of a number of episodes that are
reset alike; in a standard deviation that is divided by the number of members; and in the KL to the reference and the
novelty bonus, which each turn has to itself, after the comparison. `correct_spread` leaves both divisions
out, as the paper's second form does (F_norm = 1). Turns before one that someone else took are in no group.
"""

import torch

from llamagym_tui.engine.learning.estimators.estimate import (
    Estimate,
    compared,
    compared_episodes,
    episode_returns,
    returns_to_go,
)
from llamagym_tui.engine.learning.steps import Batch
from llamagym_tui.settings import PPOConfig


def group_in_group(batch: Batch, config: PPOConfig) -> Estimate:
    """How far an episode is above those that began alike, and a turn above those on the same observation."""
    steps = batch.steps
    to_go, known = returns_to_go(batch, steps.rewards + steps.charges, config.gamma)
    firsts = torch.tensor([0, *batch.lengths[:-1]]).cumsum(0).tolist()
    began = [batch.observations[first] for first in firsts]
    episodes = compared_episodes(
        "episodes that began alike", batch, episode_returns(batch, to_go), began
    )
    turns = compared("turns on its observation", to_go, batch.observations, known.float())
    divided = not config.correct_spread
    advantages = episodes.deviations(divided=divided) + turns.deviations(divided=divided)
    return Estimate((advantages - steps.charges) * steps.trained, to_go, (episodes, turns))
