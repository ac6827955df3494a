"""GRPO: an episode is as good as it is better than its seed's mean, in spreads of its seed.

A_i = (R_i - mean(R)) / std(R) over the episodes of a group, for every turn of episode i; R is the discounted sum of an
episode's rewards. Each episode weighs the same in the loss: a turn of it one over its number of turns. Source:
arXiv:2402.03300, section 4.1. It differs from the paper in that a group is of episodes whose environments were reset to
one seed, as a reply's prompt is there; in turns where the paper has tokens, so that a long reply weighs no less than a
short one; in a standard deviation that is divided by the number of episodes; and in the KL to the reference, which
each turn pays itself unless `kl_form` has it in the loss, as the paper has, and the novelty bonus, which each turn has
to itself: divided by the spread of a group that earns the same, either would be all that is followed.

Two corrections are those of Dr. GRPO (arXiv:2503.20783): `correct_spread` leaves the division by std(R) out, by which a
group that nearly agrees, too easy or too hard, counts as much as one that differs; `correct_length` lets turns weigh
alike, as a failure would cost less a turn the longer it was drawn out.
"""

import torch

from llamagym_tui.engine.learning.estimators.estimate import Estimate, compared_by_seed
from llamagym_tui.engine.learning.steps import Batch
from llamagym_tui.settings import PPOConfig


def group_relative(batch: Batch, config: PPOConfig) -> Estimate:
    """How far an episode is above the mean of its seed."""
    steps = batch.steps
    returns, group = compared_by_seed(batch, config)
    advantages = group.deviations(divided=not config.correct_spread) - steps.charges
    if not config.correct_length:
        lengths = torch.tensor(batch.lengths, dtype=torch.float32)
        advantages = advantages * batch.by_step(lengths.mean() / lengths)
    return Estimate(advantages * steps.trained, returns, (group,))
