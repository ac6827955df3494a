"""Trees of tokens laid flat behind their prefix: one row without padding, and the few tokens that each block reads.

As rows of a forward (`token_tree`), trees still pay for two things: padding up to the widest tree, and attention
between tokens of different branches, all of which the mask throws away. Here all trees and their prefix are one row of
N tokens, and attention is computed in blocks, each of which reads only the tokens that some query of it may see.

For that, tokens stand in preorder: a token, then all that goes on from it, then its next sibling. With the prefix "p",
"p a b c" and "p a b d" followed by "p e", the row is

    place      0  1  2  3  4  5
    token      p  a  b  c  d  e
    parent     -  0  1  2  2  0
    position   0  1  2  3  3  1
    end        6  5  5  4  5  6

where the descendants of a token are exactly the places after it and before its end. So whether a query may see a key is
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
    """(n, 1, S, T) what is added to attention scores: 0 for a query's ancestors and itself, else -inf."""


class Queries(NamedTuple):
    """Which tokens ask, and what each of them sees."""

    blocks: list[Blocks]
    """The queries in blocks, those that need most keys first."""
    order: Tensor
    """(N,) or (M,) where each query stands in the results of all blocks, one after the other."""


class FlatTree(NamedTuple):
    """Trees and their prefix as one row of tokens."""

    ids: Tensor
    """(N,) in preorder."""
    positions: Tensor
    """(N,) tokens before each on its path: what rotary embeddings turn it by."""
    every: Queries
    """All tokens, as they ask in every layer but the last."""
    read: Tensor
    """(M,) place of each token that is read, ascending."""
    last: Queries
    """The tokens that are read, by their place in `read`, as they ask in the last layer."""
    rows: Tensor
    """(M,) tree of each token that is read."""
    columns: Tensor
    """(M,) its column in that tree."""


def flat_tree(
    prefix: Sequence[int], trees: Sequence[TokenTree], rows: np.ndarray, columns: np.ndarray
) -> FlatTree:
    """Trees behind a prefix that they share.

    Args:
        prefix: ids.
        trees: with at least one token.
        rows: (M,) tree of each token that is read.
        columns: (M,) its column.
    """
    # All tokens in the order in which they are given: the prefix, then tree after tree, each in its own columns.
    before = len(prefix)
    starts = np.cumsum([before, *map(len, trees)])  # where each tree begins
    ids_as_given = list(prefix)
    positions_as_given = list(range(before))
    parents_as_given = list(range(-1, before - 1))  # the prefix is a chain
    for tree, start in zip(trees, starts[:-1].tolist(), strict=True):
        ids_as_given += tree.ids
        positions_as_given += [before + depth for depth in tree.depths]
        # A tree's first tokens follow the last one of the prefix.
        parents_as_given += [
            before - 1 if parent == ROOT else start + parent for parent in tree.parents
        ]

    # The same in preorder: at[k] is the place of the k-th given token, and parents are places, too.
    at, ends = _preorder(parents_as_given)
    ids = np.empty(len(at), dtype=np.int64)
    positions = np.empty(len(at), dtype=np.int64)
    parents = np.empty(len(at), dtype=np.int64)
    ids[at] = ids_as_given
    positions[at] = positions_as_given
    parents[at] = [at[parent] if parent != ROOT else ROOT for parent in parents_as_given]

    read = at[starts[rows] + columns]  # (M,) place of each token that is read
    order = np.argsort(read)  # queries must ascend, so that neighbours are in one block
    return FlatTree(
        ids=torch.from_numpy(ids),
        positions=torch.from_numpy(positions),
        every=_queries(np.arange(len(at)), ends, positions, parents),
        read=torch.from_numpy(read[order]),
        last=_queries(read[order], ends, positions, parents),
        rows=torch.from_numpy(rows[order]),
        columns=torch.from_numpy(columns[order]),
    )


def _preorder(parents: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """(N,) place in preorder of each token, and by preorder (N + 1,) the place after all that go on from it.

    The one more, of no token, is for padding: it ends before it begins, so nothing goes on from it.
    """
    # Every parent comes before its children. So from the last token to the first, each adds what it has to its parent.
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
    queries: np.ndarray, ends: np.ndarray, positions: np.ndarray, parents: np.ndarray
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
                queries=torch.from_numpy(members[some]),
                keys=torch.from_numpy(keys),
                mask=torch.from_numpy(mask),
            )
        )
        order[members[some]] = done + np.arange(members[some].size).reshape(-1, size)
        done += members[some].size
    return Queries(blocks, torch.from_numpy(order))
