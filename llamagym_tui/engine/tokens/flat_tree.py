"""A tree of tokens laid flat: one row without padding, and the few tokens that each block of attention reads.

As one row of N tokens, a tree would pay for attention between different branches, which the mask throws away. Here
attention is computed in blocks, each of which reads only the tokens that some query of it may see.

Tokens stand in preorder: a token, then all that goes on from it, then its next sibling. With the prefix "p",
"p a b c" and "p a b d" followed by "p e", the row is

    place      0  1  2  3  4  5
    token      p  a  b  c  d  e
    parent     -  0  1  2  2  0
    position   0  1  2  3  3  1
    end        6  5  5  4  5  6

where the descendants of a token are exactly the places after it and before its end. Whether a query may see a key is
one comparison, key <= query < end of the key, and no (N, N) mask is needed. Neighbours have nearly the same ancestors:
a block of queries from place i to place j needs the ancestors of i, and the places from i to j, and nothing else.

Each query still sees the tokens of its path and no others, each at its position on the path, so attention is exact.
Notation: N tokens, M of them read in the end; n blocks of S queries, each of which needs T keys.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from llamagym_tui.engine.tokens.token_tree import ROOT, TokenTree

GATHERED = 50
"""Queries whose attention to a key costs as much as to gather that key for them."""
FEWEST = 16
"""Queries of the smallest blocks; a larger block has a multiple of it."""
SLACK = 1.25
"""Most keys of a block, padding included, over those that it needs."""


class Blocks(NamedTuple):
    """n blocks of about as many keys, which are computed together."""

    queries: Tensor
    """(n, S) index of each query; a block of fewer has its last one again."""
    keys: Tensor
    """(n, T) place of each key among the N tokens; the last ones of a block may be padding, which the mask hides."""
    mask: Tensor
    """(n, 1, S, T) added to attention scores: 0 for a query's ancestors and itself, else -inf."""


class Queries(NamedTuple):
    """Tokens that ask, and the tokens that each of them sees."""

    blocks: list[Blocks]
    """The queries in blocks, those that need most keys first."""
    order: Tensor
    """(N,) or (M,) where each query stands in the results of all blocks, one after the other."""


class FlatTree(NamedTuple):
    """A tree as one row of tokens."""

    ids: Tensor
    """(N,) in preorder."""
    before: Tensor
    """(N,) id of the token before each on its path; -1: it is the first."""
    positions: Tensor
    """(N,) tokens before each on its path: its rotary position."""
    every: Queries
    """All tokens, as they ask in every layer but the last."""
    read: Tensor
    """(M,) place of each token that is read, ascending."""
    last: Queries
    """The tokens that are read, by their place in `read`, as they ask in the last layer."""
    columns: Tensor
    """(M,) its column in the tree."""


def flat_tree(tree: TokenTree, read: Sequence[int], device: torch.device) -> FlatTree:
    """Lay a tree of at least one token flat; M of its columns are read."""
    at, ends = _preorder(tree.parents)
    ids = np.empty(len(at), dtype=np.int64)
    positions = np.empty(len(at), dtype=np.int64)
    parents = np.empty(len(at), dtype=np.int64)
    ids[at] = tree.ids
    positions[at] = tree.depths
    parents[at] = [at[parent] if parent != ROOT else ROOT for parent in tree.parents]
    columns = np.array(read)
    places = at[columns]
    order = np.argsort(places)  # queries must ascend, so that neighbours are in one block
    places = places[order]
    return FlatTree(
        ids=torch.from_numpy(ids).to(device),
        before=torch.from_numpy(np.where(parents == ROOT, -1, ids[parents])).to(device),
        positions=torch.from_numpy(positions).to(device),
        every=_queries(np.arange(len(at)), ends, positions, parents, device),
        read=torch.from_numpy(places).to(device),
        last=_queries(places, ends, positions, parents, device),
        columns=torch.from_numpy(columns[order]).to(device),
    )


def _preorder(parents: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """(N,) place of each token in preorder, and (N + 1,) the place after its last descendant, by preorder.

    The last entry is for padding: it ends before it begins.
    """
    # Every parent comes before its children. So from the last token to the first, each adds its size to its parent.
    sizes = [1] * len(parents)
    for token in range(len(parents) - 1, -1, -1):
        if parents[token] != ROOT:
            sizes[parents[token]] += sizes[token]

    # From the first to the last, each takes the next free place behind its parent, and leaves as many as it has.
    places: list[int] = []
    free: list[int] = []  # the place of the next child of each token
    free_of_root = 0
    for token, parent in enumerate(parents):
        if parent == ROOT:
            place = free_of_root
            free_of_root += sizes[token]
        else:
            place = free[parent]
            free[parent] += sizes[token]
        places.append(place)
        free.append(place + 1)
    at = np.array(places)
    ends = np.zeros(len(parents) + 1, dtype=np.int64)
    ends[at] = at + sizes
    return at, ends


def _queries(
    queries: np.ndarray,
    ends: np.ndarray,
    positions: np.ndarray,
    parents: np.ndarray,
    device: torch.device,
) -> Queries:
    """Queries in blocks: their keys are the ancestors of the first, and all from it to the last.

    Args:
        queries: (Q,) places that ask, ascending.
        ends: (N + 1,) as of `_preorder`.
        positions: (N,) by place.
        parents: (N,) by place.
    """
    count = len(positions)  # N
    padding = count  # a place that no token has; as `ends` has it, nobody sees it

    # The size S of blocks. Ancestors are gathered for each block, so smaller ones gather more often: that costs about
    # GATHERED * Q / S * (mean number of ancestors). Larger ones have more places between their first and last query,
    # which are keys for all S of them although few see each: that costs about N * S. The sum is least where both are
    # equal.
    work = GATHERED * len(queries) / count * positions[queries].mean()
    size = max(1, round(float(np.sqrt(work)) / FEWEST)) * FEWEST

    # (n, S) indices of queries; where there are no more, the last one again.
    firsts_of_blocks = np.arange(0, len(queries), size)
    members = np.minimum(firsts_of_blocks[:, None] + np.arange(size), len(queries) - 1)

    # For each block (n,): the places of its first and last query, the number of the first one's ancestors, and of keys.
    firsts = queries[members[:, 0]]
    lasts = queries[members[:, -1]]
    above = positions[firsts]  # a token has as many ancestors as there are before it on its path
    widths = above + lasts - firsts + 1

    # (n, widest) the places of the ancestors, the root first, found from parent to parent for all blocks at once.
    ancestors = np.full((len(firsts), widths.max()), padding)
    here = firsts
    is_there = here != ROOT
    while is_there.any():
        ancestors[is_there, positions[here[is_there]]] = here[is_there]
        here = np.where(is_there, parents[here], ROOT)
        is_there = here != ROOT

    blocks: list[Blocks] = []
    order = np.empty(len(queries), dtype=np.int64)
    done = 0  # queries in blocks so far, those that are there twice included
    waiting = np.argsort(-widths, kind="stable")  # blocks, the widest first
    while len(waiting):
        # The next tensors have the widest block that waits, and all those that are not much narrower.
        width = widths[waiting[0]]
        fitting = int((widths[waiting] * SLACK + FEWEST >= width).sum())
        some, waiting = np.split(waiting, [fitting])
        column = np.arange(width)

        # (n, T) keys: first the ancestors, then the places from the first query on, then padding.
        from_first = firsts[some, None] + column - above[some, None]
        keys = np.where(column < above[some, None], ancestors[some, :width], from_first)
        keys[column >= widths[some, None]] = padding

        # (n, S, T): a query sees itself and its ancestors, the places from which it goes on.
        asking = queries[members[some]][:, :, None]
        sees = (keys[:, None, :] <= asking) & (asking < ends[keys][:, None, :])
        mask = np.where(sees, np.float32(0), np.float32("-inf"))[:, None]

        keys = np.minimum(
            keys, count - 1
        )  # a token that exists is gathered in the place of padding
        blocks.append(
            Blocks(
                queries=torch.from_numpy(members[some]).to(device),
                keys=torch.from_numpy(keys).to(device),
                mask=torch.from_numpy(mask).to(device),
            )
        )
        order[members[some]] = done + np.arange(members[some].size).reshape(-1, size)
        done += members[some].size
    return Queries(blocks, torch.from_numpy(order).to(device))
