"""Advantages: generalised advantage estimation and whitening, as pure functions.

T steps of the episodes of a batch, which are their turns or their tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Advantages(NamedTuple):
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
        following_value, following_advantage = bootstrap, 0.0
        for _ in range(length):
            reward, value, moved, is_own = steps.pop()
            # delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1}
            discount, trace = gamma**moved, lam if moved else 1.0
            delta = reward + discount * following_value - value
            following_advantage = delta + discount * trace * following_advantage
            found.append(following_advantage)
            following_value = value
            if not is_own:
                following_advantage = 0.0
    advantages = torch.tensor(found[::-1], dtype=values.dtype)
    return Advantages(advantages, advantages + values)


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-6) -> Tensor:
    """(T,) advantages of a batch with mean 0 and standard deviation 1 over the (T,) mask of trained steps."""
    # Steps of someone else are left out: they have no loss, so they must not shift or scale those that have.
    kept = advantages[mask]
    if len(kept) < 2:
        return advantages
    return (advantages - kept.mean()) / (kept.std(unbiased=False) + eps)


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns); 0 where returns do not vary. (T,) each."""
    variance = returns.var(unbiased=False)
    if len(returns) < 2 or float(variance) < 1e-12:
        return 0.0
    return float(1 - (returns - values).var(unbiased=False) / variance)
