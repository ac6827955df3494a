"""The directions in which hidden states differ, scaled so that each differs by as much.

What an adapter gets of a pre-trained model is one large common vector and, a thousandth of its power, what differs
between prompts. Directions from here leave the common part out: their inner product with every common state is 0, so an
adapter needs no bias. Notation: N states, D hidden size, M common states, K directions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

LEAST_SPREAD = 0.01
"""Of the largest spread along a direction: smaller ones count as this, or rounding would be scaled up."""

LEAST_OWN = 0.01
"""Share of a mean state that other places' mean states must leave of it."""

MOST_ELSEWHERE = 3.0
"""Spread along a direction at all other places together, where at most 1 is that at the place of the states."""


def whitening(
    states: Tensor,
    common: Tensor,
    elsewhere: Sequence[Tensor],
    most: int,
    least: float = 0.0,
) -> Tensor:
    """(K, D) directions in which states differ and those at other places do not, those that tell most apart first.

    What is whitened is the states of all places together: along each direction, the variance of `states` is 1 less a
    ninth (`MOST_ELSEWHERE`) of that elsewhere. So of what differs by far more elsewhere only little is left, or an
    adapter that tells `states` apart would move the tokens of other places as well.

    Args:
        states: (N, D) of distinct contexts, N at least 2.
        common: (M, D) states whose directions are left out: the mean of `states`, and of states at other places that
            nothing is to be learnt from.
        elsewhere: (E, D) states of each other place.
        most: K at most; there are fewer if the states have fewer directions.
        least: directions along which states spread by less than this share of their whole spread are left out.
    """
    states = states.double()
    mean = states.mean(0)
    centred = states - mean
    # 1. Leave out the span of the common states, so that A @ common is exactly 0 for each of them.
    basis = _basis(torch.cat([mean[None], common.double()]))
    differing = _without(centred, basis)
    # 2. In how many directions there is more than rounding.
    spreads = torch.linalg.svdvals(differing) / len(states) ** 0.5
    whole = centred.square().sum(1).mean().sqrt()
    is_enough = (spreads > 1e-6 * spreads[0]) & (spreads >= least * whole)
    count = min(most, int(is_enough.sum()))
    # 3. Whiten the states of all places together, and take the principal components of `states` among these.
    covariance = differing.T @ differing / len(states)
    together = covariance + (LEAST_SPREAD * spreads[0]) ** 2 * torch.eye(len(mean)).to(mean)
    for place in elsewhere:
        others = _without(place.double() - place.double().mean(0), basis)
        together += others.T @ others / len(others) / MOST_ELSEWHERE**2
    lengths, axes = torch.linalg.eigh(together)
    whiten = axes / lengths.sqrt() @ axes.T
    _, components = torch.linalg.eigh(whiten @ covariance @ whiten)
    return _without(components.T.flip(0)[:count] @ whiten, basis).float()


def constant(mean: Tensor, others: Tensor) -> Tensor:
    """(D,) the direction in which all states of a place are 1, as far as they are their mean, and the others 0.

    0 if the mean is hardly more than the others together.

    Args:
        mean: (D,) mean state of the place.
        others: (M, D) mean states of other places.
    """
    mean = mean.double()
    own = mean
    if len(others):
        basis = _basis(others.double())
        own = mean - basis @ (basis.T @ mean)
    if own.norm() < LEAST_OWN * mean.norm():
        return torch.zeros_like(mean).float()
    return (own / (own @ mean)).float()


def _basis(vectors: Tensor) -> Tensor:
    """(D, M) orthonormal columns that span M or more vectors, of which some may depend on the others."""
    _, lengths, axes = torch.linalg.svd(vectors, full_matrices=False)
    # Only directions in which there is more than rounding.
    return axes[lengths > 1e-4 * lengths[0]].T


def _without(states: Tensor, basis: Tensor) -> Tensor:
    """(N, D) states less what of them lies in the span of (D, M) orthonormal columns."""
    return states - (states @ basis) @ basis.T
