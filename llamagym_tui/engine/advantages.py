"""Advantages: generalised advantage estimation and whitening, as pure functions.

T steps of an episode, which are its turns or its tokens; U turns or tokens of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.errors import ShapeMismatch


class Advantages(NamedTuple):
    """What GAE gives for one trajectory."""

    advantages: Tensor
    """(T,) not normalised."""
    returns: Tensor
    """(T,) advantages + values: the value head's targets."""


def batch_advantages(
    rewards: Tensor,
    values: Tensor,
    ends_turn: Tensor,
    lengths: Sequence[int],
    bootstraps: Sequence[float],
    *,
    gamma: float,
    lam: float,
) -> Advantages:
    """Advantages of episodes that stand one after the other; none leaks into the one before.

    Args:
        rewards, values, ends_turn: (U,) as `gae` wants them of each episode.
        lengths: steps of each episode.
        bootstraps: value after each episode.
        gamma: discount per turn.
        lam: lambda per turn.
    """
    parts = zip(*(column.split(list(lengths)) for column in (rewards, values, ends_turn)), bootstraps, strict=True)
    found = [gae(*part, gamma=gamma, lam=lam) for part in parts]
    return Advantages(torch.cat([one.advantages for one in found]), torch.cat([one.returns for one in found]))


def gae(
    rewards: Tensor, values: Tensor, ends_turn: Tensor, bootstrap: float, *, gamma: float, lam: float
) -> Advantages:
    """Generalised advantage estimates for one trajectory.

    Args:
        rewards: (T,) reward of each step.
        values: (T,) value before each step.
        ends_turn: (T,) bool: steps after which `gamma` and `lam` apply; after the others both are 1.
        bootstrap: value after the last step; 0 if the episode terminated, V(final observation) if truncated.
        gamma: discount per turn.
        lam: lambda per turn.
    Raises:
        ShapeMismatch: `rewards` and `values` differ in length.
    Source: arXiv:1506.02438, eq. 16.
    """
    if rewards.shape != values.shape:
        raise ShapeMismatch(f"{len(rewards)} rewards and {len(values)} values: a trajectory has one of each a step.")
    found: list[float] = []
    following_value, following_advantage = bootstrap, 0.0
    backwards = (column.flip(0).tolist() for column in (rewards, values, ends_turn))
    for reward, value, is_end in zip(*backwards, strict=True):
        # delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1}
        discount, trace = (gamma, lam) if is_end else (1.0, 1.0)
        delta = reward + discount * following_value - value
        following_advantage = delta + discount * trace * following_advantage
        found.append(following_advantage)
        following_value = value
    advantages = torch.tensor(found[::-1], dtype=values.dtype)
    return Advantages(advantages, advantages + values)


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-6) -> Tensor:
    """Advantages with mean 0 and standard deviation 1 over those that the mask keeps.

    Args:
        advantages: (U,) of the whole batch.
        mask: (U,) True for what is trained.
        eps: added to the standard deviation.
    """
    kept = advantages[mask]
    if len(kept) < 2:
        return advantages
    return (advantages - kept.mean()) / (kept.std(unbiased=False) + eps)


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns); 0 where returns do not vary. (U,) each."""
    variance = returns.var(unbiased=False)
    if len(returns) < 2 or float(variance) < 1e-12:
        return 0.0
    return float(1 - (returns - values).var(unbiased=False) / variance)
