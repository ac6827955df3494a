"""PPO's own estimate of advantages, by a critic: generalised advantage estimation, whitened over the batch.

delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1}. Source: arXiv:1506.02438, eq. 16.
It differs from the paper where a turn takes several steps of the environment, and where someone else took a turn.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.estimators.estimate import Estimate, whiten
from llamagym_tui.engine.learning.steps import Batch
from llamagym_tui.settings import PPOConfig


def generalised(batch: Batch, config: PPOConfig) -> Estimate:
    """Advantages, whitened if configured, and the returns that the value head is drawn to."""
    steps = batch.steps
    found = batch_advantages(
        steps.rewards,
        steps.values,
        steps.moves,
        batch.lengths,
        batch.bootstraps,
        gamma=config.gamma,
        lam=config.lam,
        trained=steps.trained,
    )
    advantages = found.advantages
    # Over the batch and not over the minibatch, so that an advantage does not depend on what it is drawn with.
    if config.whiten_advantages:
        advantages = whiten(advantages, steps.trained)
    return Estimate(advantages, found.returns)


class Advantages(NamedTuple):
    """What generalised advantage estimation gives."""

    advantages: Tensor
    """(T,) not normalised."""
    returns: Tensor
    """(T,) advantages + values: the value head's targets."""


def batch_advantages(
    rewards: Tensor,
    values: Tensor,
    moves: Tensor,
    lengths: Sequence[int],
    bootstraps: Sequence[float],
    *,
    gamma: float,
    lam: float,
    trained: Tensor | None = None,
) -> Advantages:
    """Generalised advantage estimates of episodes that stand one after the other; none leaks into the one before.

    What someone else did is no merit of the policy's: the trace is cut at such a step, so the steps before it are
    credited by its value alone. That is V-trace with a ratio of 0 where the policy did not act.

    Args:
        rewards: (T,) reward of each step.
        values: (T,) value before each step.
        moves: (T,) environment steps after each, which `gamma` discounts; after one with 0, `lam` is 1, too.
        lengths: steps of each episode.
        bootstraps: value after each episode; 0 if it terminated, V(final observation) if it was truncated.
        gamma: discount per environment step: with actions that take several, a semi-Markov decision process.
        lam: lambda per turn.
        trained: (T,) bool: the steps that the policy made. None: all.
    Raises:
        ValueError: `rewards`, `values` and `lengths` are not of as many steps.
    Source: arXiv:1506.02438, eq. 16; the cut trace: arXiv:1802.01561, eq. 1; several steps: arXiv:2401.14151.
    """
    if not len(rewards) == len(values) == len(moves) == sum(lengths):
        raise ValueError(
            f"{len(rewards)} rewards and {len(values)} values of {sum(lengths)} steps: each step has one of both."
        )
    own = [True] * len(values) if trained is None else trained.tolist()
    # Plain numbers, because for short episodes they are faster than tensors; from the last step to the first.
    steps = list(zip(rewards.tolist(), values.tolist(), moves.tolist(), own, strict=True))
    found: list[float] = []
    for length, bootstrap in reversed(list(zip(lengths, bootstraps, strict=True))):
        following_value = bootstrap
        following_advantage = 0.0
        for _ in range(length):
            reward, value, moved, is_own = steps.pop()
            # delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1}
            discount = gamma**moved
            trace = lam if moved else 1.0
            delta = reward + discount * following_value - value
            following_advantage = delta + discount * trace * following_advantage
            found.append(following_advantage)
            following_value = value
            if not is_own:
                following_advantage = 0.0
    advantages = torch.tensor(found[::-1], dtype=values.dtype)
    return Advantages(advantages=advantages, returns=advantages + values)
