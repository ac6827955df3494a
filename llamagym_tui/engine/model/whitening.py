"""The directions in which hidden states differ, scaled so that each differs by as much.

What an adapter gets of a pre-trained model is one large common vector and, a thousandth of its power, what differs
between prompts. Directions from here leave the common part out: their inner product with every common state is 0, so an
adapter needs no bias. Notation: N states, D hidden size, M common states, K directions.
"""

import torch
from torch import Tensor

LEAST_SPREAD = 0.01
"""Of the largest spread along a direction: smaller ones count as this, or rounding would be scaled up."""

LEAST_OWN = 0.01
"""Share of a mean state that other places' mean states must leave of it."""


def whitening(states: Tensor, common: Tensor, most: int, least: float = 0.0) -> Tensor:
    """(K, D) the principal directions of states, largest first, each divided by the spread along it.

    Their inner products with the states have mean 0 and, but for `LEAST_SPREAD`, variance 1.

    Args:
        states: (N, D) of distinct contexts, N at least 2.
        common: (M, D) states whose directions are left out: the mean of `states`, and of states at other places that
            nothing is to be learnt from.
        most: K at most; there are fewer if the states have fewer directions.
        least: directions along which states spread by less than this share of their whole spread are left out.
    """
    states = states.double()
    mean = states.mean(0)
    centred = states - mean
    # 1. Leave out the span of the common states, so that A @ common is exactly 0 for each of them.
    basis = _basis(torch.cat([mean[None], common.double()]))
    differing = centred - (centred @ basis) @ basis.T
    # 2. Principal components of what is left: rows of V, with the standard deviation along each.
    _, singular, components = torch.linalg.svd(differing, full_matrices=False)
    spreads = singular / len(states) ** 0.5
    whole = centred.square().sum(1).mean().sqrt()
    is_enough = (spreads > 1e-6 * spreads[0]) & (spreads >= least * whole)
    count = min(most, int(is_enough.sum()))
    # 3. Each divided by its spread.
    scale = spreads[:count].clamp(min=LEAST_SPREAD * float(spreads[0]))
    return (components[:count] / scale[:, None]).float()


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
