"""REINFORCE: the policy follows the return itself.

A_t = G_t, the discounted sum of what follows turn t. Source: Williams 1992 (doi:10.1007/BF00992696), without a
baseline. It differs from the paper in PPO's clipped objective, by which a batch can be used several times. Turns before
one that someone else took teach nothing, as their return is not the policy's alone.
"""

from llamagym_tui.engine.learning.estimators.estimate import Estimate, returns_to_go
from llamagym_tui.engine.learning.steps import Batch
from llamagym_tui.settings import PPOConfig


def returns_alone(batch: Batch, config: PPOConfig) -> Estimate:
    """Each turn's own return."""
    returns, known = returns_to_go(batch, batch.steps.rewards, config.gamma)
    return Estimate(returns * known, returns)
