"""RLOO: an episode is as good as it is better than the others of its seed.

A_i = R_i - mean of R_j over the other episodes j of the group, for every turn of episode i; R is the discounted sum of
an episode's rewards. Source: arXiv:2402.14740, eq. 8 (REINFORCE Leave-One-Out). It differs from the paper in PPO's
clipped objective; in that a group is of episodes whose environments were reset to one seed, as a reply's prompt is
here; and in the KL to the reference and the novelty bonus, which each turn has to itself, after the comparison: so a
group whose episodes earn the same is one that teaches nothing. An episode alone in its group has nothing to be compared
with.
"""

from llamagym_tui.engine.learning.estimators.estimate import Estimate, compared_by_seed
from llamagym_tui.engine.learning.steps import Batch
from llamagym_tui.settings import PPOConfig


def leave_one_out(batch: Batch, config: PPOConfig) -> Estimate:
    """How much more an episode earned than the others of its seed."""
    steps = batch.steps
    returns, group = compared_by_seed(batch, config)
    sizes = group.of_steps(group.sizes)
    # R - mean of the others = (R - mean of all) n / (n - 1)
    advantages = group.deviations(divided=False) * sizes / (sizes - 1).clamp(min=1)
    return Estimate((advantages - steps.charges) * steps.trained, returns, (group,))
