"""Directions in which an adapter on the LM head sees states: those in which they differ where admissible replies part.

A pre-trained model's states have one large vector in common and, a thousandth of its power, what differs between
prompts. The directions leave the common part out: their inner product with every common state is 0, so an adapter needs
no bias. They are scaled so that states differ by as much in each. Notation: N states, D hidden size, M common states, K
directions.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.tokens.token_tree import TokenTree

LEAST_NEW_SPREAD = 0.05
"""Share of the states' spread from which on a direction that the first batches did not show is taken up."""
LEAST_SPREAD = 0.1
"""Share of the largest spread along a direction. Smaller ones count as about this much: what hardly differs between the
states of a first batch differs by more in states that come later, and would be hundreds there."""
Place = tuple[int, ...]
"""The tokens of a reply up to one of its places: none where it begins, after the prompt's last token."""


KEPT_BACK = -1
"""Stands for the wording that is kept for evaluations."""


class Read(NamedTuple):
    """Prompts that were read, with the admissible replies behind them."""

    tree: TokenTree
    """The replies."""
    wording: int
    """The number of the prompts' wording."""
    encoded: Encoded
    """What the trunk says."""


@torch.no_grad()
def measure(down: Tensor, parts: Iterable[Read]) -> None:
    """Set rows of A that are free to directions in which the states of a batch differ at which replies part.

    The first batch gives most of them. Where it shows few states, later ones differ in more directions: these come
    beside the first ones, which stay, so that the policy does not change.

    Args:
        down: (K, D), A, in which rows that are 0 are free.
        parts: prompts of all wordings. They are not looked at if no row is free.
    """
    is_free = ~down.any(1)  # (K,)
    if not is_free.any():
        return
    parting = _parting_states(parts)
    if not parting:
        return
    states = torch.cat(list(parting.values()))
    left_out = torch.stack([alike.mean(0) for alike in parting.values()])
    least = 0.0
    known = down[~is_free]
    if not len(known):
        # An action may be preferred or avoided in all states alike, which no difference between them tells.
        mean = states.mean(0)
        down[0] = mean / mean.square().sum()
        is_free[0] = False
    else:
        # As long as the common states, or what is known would count as rounding beside them.
        length = left_out.norm(dim=1).mean()
        left_out = torch.cat([left_out, known * (length / known.norm(dim=1, keepdim=True))])
        least = LEAST_NEW_SPREAD
    if len(states) == 1:  # it differs from no other
        return
    found = whitening(states, left_out, int(is_free.sum()), least)
    down[is_free.nonzero().squeeze(1)[: len(found)]] = found


def _parting_states(parts: Iterable[Read]) -> dict[tuple[int, Place], Tensor]:
    """(R, D) states in each wording, at each place after which admissible replies part, of all forwards together."""
    states: dict[tuple[int, Place], list[Tensor]] = {}
    for tree, wording, encoded in parts:
        places = _places(tree)
        for parent in sorted(set(tree.parents)):
            if tree.parents.count(parent) > 1:
                column = parent + 1
                key = (wording, places[column])
                states.setdefault(key, []).append(encoded.hidden[:, column])
    return {key: torch.cat(found) for key, found in states.items()}


def _places(tree: TokenTree) -> list[Place]:
    """The place of each column: the first is the prompt's last token, then come the tree's nodes."""
    places: list[Place] = [()]
    for token, parent in zip(tree.ids, tree.parents, strict=True):
        places.append((*places[parent + 1], token))
    return places


def whitening(states: Tensor, common: Tensor, most: int, least: float = 0.0) -> Tensor:
    """(K, D) directions in which states differ, those that tell most apart first.

    Args:
        states: (N, D) of distinct contexts, N at least 2.
        common: (M, D) states whose directions are left out besides the mean of `states`.
        most: K at most; there are fewer if the states have fewer directions.
        least: directions along which states spread by less than this share of their whole spread are left out.
    """
    states = states.double()
    mean = states.mean(0)
    centred = states - mean
    # 1. Leave out the span of the common states, so that A @ common is exactly 0 for each of them.
    basis = _basis(torch.cat([mean[None], common.double()]))
    differing = centred - (centred @ basis) @ basis.T
    # 2. The principal components; each row of `axes` is a direction of unit length.
    _, lengths, axes = torch.linalg.svd(differing, full_matrices=False)
    spreads = lengths / len(states) ** 0.5
    # An axis may point either way: a resumed run has to find the same one.
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    axes = axes * largest.sign()
    # 3. Only directions in which there is more than rounding.
    whole = centred.square().sum(1).mean().sqrt()
    is_enough = (spreads > 1e-6 * spreads[0]) & (spreads >= least * whole)
    count = min(most, int(is_enough.sum()))
    damped = (spreads[:count].square() + (LEAST_SPREAD * spreads[0]) ** 2).sqrt()
    return (axes[:count] / damped[:, None]).float()


def _basis(vectors: Tensor) -> Tensor:
    """(D, M) orthonormal columns that span M or more vectors, of which some may depend on the others."""
    _, lengths, axes = torch.linalg.svd(vectors, full_matrices=False)
    # Only directions in which there is more than rounding.
    return axes[lengths > 1e-4 * lengths[0]].T
