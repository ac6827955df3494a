"""PPO's losses, as pure functions. N tokens, U turns or tokens with a value.

They are sums over tokens; `ppo` divides by the number of turns.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class PolicyLoss(NamedTuple):
    """The clipped surrogate, and figures that show how far the policy has moved."""

    loss: Tensor
    """() sum over tokens."""
    approx_kl: Tensor
    """() sum over tokens of the k3 estimate between old and new policy, nats."""
    clipped: Tensor
    """() tokens whose ratio lies outside the clip range."""
    largest_deviation: Tensor
    """() largest |ratio - 1|."""


def clipped_policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_range: float
) -> PolicyLoss:
    """PPO's clipped surrogate, summed over tokens.

    Args:
        logprobs: (N,) under the policy being trained.
        old_logprobs: (N,) when sampled.
        advantages: (N,) of the turn that each token belongs to.
        clip_range: bound on the ratio's distance from 1.
    Source: arXiv:1707.06347, eq. 7; k3: joschu.net/blog/kl-approx.html.
    """
    log_ratio = logprobs - old_logprobs
    ratio = log_ratio.exp()
    # L = -min(r A, clip(r, 1 - eps, 1 + eps) A)
    surrogate = torch.minimum(
        ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages
    )
    loss = -surrogate.sum()
    with torch.no_grad():
        deviation = (ratio - 1).abs()
        return PolicyLoss(
            loss=loss,
            approx_kl=deviation_k3(log_ratio).sum(),
            clipped=(deviation > clip_range).float().sum(),
            largest_deviation=deviation.max(),
        )


def deviation_k3(log_ratio: Tensor) -> Tensor:
    """k3 estimate of KL(old || new) from log(new/old) at samples of old: (r - 1) - log r, never negative."""
    return log_ratio.exp() - 1 - log_ratio


def reference_kl(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """(N,) k3 estimate of KL(policy || reference) in nats, from (N,) log-probabilities at samples of the policy.

    Its gradient is the policy's alone. Source: arXiv:2402.03300, eq. 4.
    """
    return deviation_k3(reference_logprobs - logprobs)


def value_loss(values: Tensor, returns: Tensor, weights: Tensor) -> Tensor:
    """() half the squared error, weighted and summed; (U,) each."""
    return 0.5 * (weights * (values - returns).square()).sum()
