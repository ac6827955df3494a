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
"""Spread along a direction of all nuisances together, where at most 1 is that of the states."""


def whitening(
    states: Tensor,
    common: Tensor,
    nuisances: Sequence[Tensor],
    most: int,
    least: float = 0.0,
) -> Tensor:
    """(K, D) directions in which states differ and nuisances do not, those that tell most apart first.

    What is whitened is states and nuisances together: along each direction, the variance of `states` is 1 less a
    ninth (`MOST_ELSEWHERE`) of that of the nuisances. So of a direction in which these differ by far more only little
    is left, or an adapter that tells `states` apart would move other tokens as well.

    Args:
        states: (N, D) of distinct contexts, N at least 2.
        common: (M, D) states whose directions are left out: the mean of `states`, and of states at other places that
            nothing is to be learnt from.
        nuisances: (E, D) each, by how much states differ that nothing is to be learnt from, as those of one other
            place from their mean; their variances are added.
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
    # 3. Whiten states and nuisances together, and take the principal components of `states` among these.
    covariance = differing.T @ differing / len(states)
    together = covariance + _covariance(nuisances, basis) / MOST_ELSEWHERE**2
    together += (LEAST_SPREAD * spreads[0]) ** 2 * torch.eye(len(mean)).to(mean)
    lengths, axes = torch.linalg.eigh(together)
    whiten = axes / lengths.sqrt() @ axes.T
    _, components = torch.linalg.eigh(whiten @ covariance @ whiten)
    return _without(components.T.flip(0)[:count] @ whiten, basis).float()


def constant(mean: Tensor, others: Tensor, nuisances: Sequence[Tensor]) -> Tensor:
    """(D,) the direction in which all states of a place are 1, as far as they are their mean, and the others 0.

    Of all such directions it is the one along which the nuisances differ least. 0 if the mean is hardly more than the
    others together.

    Args:
        mean: (D,) mean state of the place.
        others: (M, D) mean states of other places.
        nuisances: as in `whitening`.
    """
    mean = mean.double()
    basis = _basis(others.double()) if len(others) else mean.new_zeros(len(mean), 0)
    own = _without(mean, basis)
    if own.norm() < LEAST_OWN * mean.norm():
        return torch.zeros_like(mean).float()
    differing = _covariance(nuisances, basis)
    differing += (LEAST_SPREAD * own.norm()) ** 2 * torch.eye(len(mean)).to(mean)
    direction = _without(torch.linalg.solve(differing, own), basis)
    return (direction / (direction @ mean)).float()


def _covariance(nuisances: Sequence[Tensor], basis: Tensor) -> Tensor:
    """(D, D) sum of the second moments of all, less what lies in the span of a basis."""
    total = basis.new_zeros(len(basis), len(basis))
    for each in nuisances:
        found = _without(each.double(), basis)
        total += found.T @ found / len(found)
    return total


def _basis(vectors: Tensor) -> Tensor:
    """(D, M) orthonormal columns that span M or more vectors, of which some may depend on the others."""
    _, lengths, axes = torch.linalg.svd(vectors, full_matrices=False)
    # Only directions in which there is more than rounding.
    return axes[lengths > 1e-4 * lengths[0]].T


def _without(states: Tensor, basis: Tensor) -> Tensor:
    """(N, D) states less what of them lies in the span of (D, M) orthonormal columns."""
    return states - (states @ basis) @ basis.T
