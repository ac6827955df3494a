"""ReBN: REINFORCE with returns that are normalised over the batch.

A_t = (G_t - mean(G)) / std(G), mean and standard deviation over all turns of the batch. Source: arXiv:2510.01051
(GEM), section 2.2, "return batch normalization". It differs from the paper in PPO's clipped objective, and in that the
KL to the reference may be part of the return, as `kl_form` says. Turns before one that someone else took teach nothing.
"""

from llamagym_tui.engine.learning.estimators.estimate import (
    Estimate,
    compared,
    returns_to_go,
    whiten,
)
from llamagym_tui.engine.learning.steps import Batch
from llamagym_tui.settings import PPOConfig


def normalised_returns(batch: Batch, config: PPOConfig) -> Estimate:
    """Each turn's return, as far from the mean of all as it is."""
    returns, known = returns_to_go(batch, batch.steps.rewards, config.gamma)
    whole = compared("turns of the batch", returns, [0] * len(returns), known.float())
    return Estimate(whiten(returns, known) * known, returns, (whole,))
