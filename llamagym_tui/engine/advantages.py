"""Advantages over turns: generalised advantage estimation and whitening, as pure functions. K turns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.errors import ShapeMismatch


class Advantages(NamedTuple):
    """What GAE gives for one trajectory."""

    advantages: Tensor
    """(K,) not normalised."""
    returns: Tensor
    """(K,) advantages + values: the value head's targets."""


def turn_advantages(rewards: Tensor, values: Tensor, bootstrap: float, *, gamma: float, lam: float) -> Advantages:
    """Generalised advantage estimates for one trajectory.

    Args:
        rewards: (K,) reward of each turn.
        values: (K,) value before each turn.
        bootstrap: value after the last turn; 0 if the episode terminated, V(final observation) if truncated.
        gamma: discount per turn.
        lam: lambda per turn.
    Raises:
        ShapeMismatch: `rewards` and `values` differ in length.
    Source: arXiv:1506.02438, eq. 16.
    """
    if rewards.shape != values.shape:
        raise ShapeMismatch(f"{len(rewards)} rewards and {len(values)} values: a trajectory has one of each a turn.")
    advantages = torch.zeros_like(values)
    following_value, following_advantage = bootstrap, 0.0
    for k in range(len(rewards) - 1, -1, -1):
        # delta_k = r_k + gamma V_{k+1} - V_k;  A_k = delta_k + gamma lambda A_{k+1}
        delta = float(rewards[k]) + gamma * following_value - float(values[k])
        following_advantage = delta + gamma * lam * following_advantage
        advantages[k] = following_advantage
        following_value = float(values[k])
    return Advantages(advantages, advantages + values)


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-6) -> Tensor:
    """Advantages with mean 0 and standard deviation 1 over the turns that the mask keeps.

    Args:
        advantages: (K,) of the whole batch.
        mask: (K,) True for turns that are trained.
        eps: added to the standard deviation.
    """
    kept = advantages[mask]
    if len(kept) < 2:
        return advantages
    return (advantages - kept.mean()) / (kept.std(unbiased=False) + eps)


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns); 0 where returns do not vary. (K,) each."""
    variance = returns.var(unbiased=False)
    if len(returns) < 2 or float(variance) < 1e-12:
        return 0.0
    return float(1 - (returns - values).var(unbiased=False) / variance)
