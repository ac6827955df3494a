"""What an adapter on the LM head sees: directions in which a batch's states differ where admissible replies part.

They must tell states apart and nothing else: what they saw at other places of a reply would change its form. So the
states at the other places are measured as nuisances.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.narrow import NarrowEncoded
from llamagym_tui.engine.model.whitening import constant, whitening
from llamagym_tui.engine.tokens.token_tree import TokenTree

LEAST_NEW_SPREAD = 0.05
"""Share of the states' spread from which on a direction that the first batches did not show is taken up."""
Place = tuple[int, ...]
"""The tokens of a reply up to one of its places: none where it begins, after the prompt's last token."""


class Seen(NamedTuple):
    """The states of a batch."""

    parting: dict[Place, Tensor]
    """(R, D) at each place after which admissible replies part."""
    elsewhere: dict[Place, Tensor]
    """(R, D) at each other place."""


@torch.no_grad()
def measure(down: Tensor, parts: Sequence[tuple[TokenTree, Encoded]]) -> None:
    """Set rows of A that are free to directions in which the states of a batch differ at which replies part.

    The first batch gives most of them. Where it shows few states, later ones differ in more directions: these come
    beside the first ones, which stay, so that the policy does not change.

    Args:
        down: (K, D), A, in which rows that are 0 are free.
        parts: trees of admissible replies, with what the trunk says of prompts and of the nodes behind them.
    """
    is_free = ~down.any(1)  # (K,)
    if not is_free.any():
        return
    seen = _seen(parts)
    if not seen.parting:
        return
    nuisances = list(map(_centred, seen.elsewhere.values()))
    states = torch.cat(list(seen.parting.values()))
    others = [found.mean(0) for found in seen.elsewhere.values()]
    left_out = torch.stack([*others, *(found.mean(0) for found in seen.parting.values())])
    least = 0.0
    known = down[~is_free]
    if not len(known):
        # An action may be preferred or avoided in all states alike, which no difference between them tells.
        of_others = torch.stack(others) if others else left_out[:0]
        down[0] = constant(states.mean(0), of_others, nuisances)
        is_free[0] = not down[0].any()
    else:
        # As long as the common states, or what is known would count as rounding beside them.
        length = left_out.norm(dim=1).mean()
        left_out = torch.cat([left_out, known * (length / known.norm(dim=1, keepdim=True))])
        least = LEAST_NEW_SPREAD
    if len(states) == 1:  # it differs from no other
        return
    found = whitening(states, left_out, nuisances, int(is_free.sum()), least)
    down[is_free.nonzero().squeeze(1)[: len(found)]] = found


def _seen(parts: Sequence[tuple[TokenTree, Encoded]]) -> Seen:
    """The states at each place of the admissible replies, of all forwards together: most have some places in common."""
    states: dict[Place, list[Tensor]] = {}
    parting: set[Place] = set()
    for tree, encoded in parts:
        if not isinstance(encoded, NarrowEncoded):  # a forward of whole replies
            continue
        places = _places(tree)
        parents = tree.parents
        parting |= {places[parent + 1] for parent in parents if parents.count(parent) > 1}
        for column, place in enumerate(places):
            states.setdefault(place, []).append(encoded.hidden[:, column])
    found = {place: torch.cat(each) for place, each in states.items()}
    return Seen(
        parting={place: each for place, each in found.items() if place in parting},
        elsewhere={place: each for place, each in found.items() if place not in parting},
    )


def _places(tree: TokenTree) -> list[Place]:
    """The place of each column: the first is the prompt's last token, then come the tree's nodes."""
    places: list[Place] = [()]
    for token, parent in zip(tree.ids, tree.parents, strict=True):
        places.append((*places[parent + 1], token))
    return places


def _centred(states: Tensor) -> Tensor:
    return states - states.mean(0)
