"""Trees of tokens laid flat behind their prefix: one row without padding, and the few tokens that each block reads.

Tokens stand in preorder, so that those which go on from a token follow it, until its end. Neighbours then have nearly
the same ancestors: a block of queries needs what stands before its first one, and all from there to its last one.
Notation: N tokens, M of them read in the end, B queries of a block, W keys that it needs.
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
"""Queries of a block."""
SLACK = 1.25
"""Most keys of a block, padding included, over those that it needs."""


class Blocks(NamedTuple):
    """n blocks of about as many keys."""

    queries: Tensor
    """(n, B) index of each; a block of fewer has its last one again."""
    keys: Tensor
    """(n, W) index of each among the N tokens."""
    mask: Tensor
    """(n, 1, B, W) what is added to attention scores: 0 for a query's ancestors and itself, else -inf."""


class Queries(NamedTuple):
    blocks: list[Blocks]
    order: Tensor
    """Of each query, where it stands in the blocks, one after the other."""


class FlatTree(NamedTuple):
    ids: Tensor
    """(N,) in preorder."""
    positions: Tensor
    """(N,) tokens before each on its path."""
    every: Queries
    """All tokens."""
    read: Tensor
    """(M,) index of each token that is read."""
    last: Queries
    """These, by their place in `read`."""
    rows: Tensor
    """(M,) tree of each token that is read."""
    columns: Tensor
    """(M,)."""


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
    count = len(prefix)
    starts = np.cumsum([count, *map(len, trees)])
    above = list(range(-1, count - 1))
    for tree, start in zip(trees, starts.tolist(), strict=False):
        above += [count - 1 if parent == ROOT else start + parent for parent in tree.parents]
    at, ends = _preorder(above)
    ids, positions, parents = np.empty((3, len(above)), dtype=np.int64)
    ids[at] = [*prefix, *(token for tree in trees for token in tree.ids)]
    positions[at] = [*range(count), *(count + depth for tree in trees for depth in tree.depths)]
    parents[at] = [at[parent] if parent != ROOT else ROOT for parent in above]
    read = at[starts[rows] + columns]
    order = np.argsort(read)
    every, last = (
        _queries(each, ends, positions, parents) for each in (np.arange(len(at)), read[order])
    )
    found = (torch.from_numpy(each[order]) for each in (read, rows, columns))
    return FlatTree(
        torch.from_numpy(ids), torch.from_numpy(positions), every, next(found), last, *found
    )


def _preorder(parents: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """(N,) place in preorder of each token, and by preorder (N + 1,) the place after all that go on from it.

    The one more, of no token, is for padding: it ends before it begins, so nothing goes on from it.
    """
    sizes, places, free = [1] * len(parents), list[int](), list[int]()
    for token in range(len(parents) - 1, -1, -1):
        if parents[token] != ROOT:
            sizes[parents[token]] += sizes[token]
    begin = 0
    for token, parent in enumerate(parents):
        if parent == ROOT:
            place, begin = begin, begin + sizes[token]
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
    """Queries, which ascend, in blocks: their keys are the ancestors of the first, and all from it to the last."""
    # About what costs least: each key is gathered for a block, and tokens between its queries are keys, too.
    work = GATHERED * len(queries) / len(positions) * positions[queries].mean()
    size = max(1, round(float(np.sqrt(work)) / FEWEST)) * FEWEST
    members = np.minimum(
        np.arange(0, len(queries), size)[:, None] + np.arange(size), len(queries) - 1
    )
    firsts, lasts = queries[members[:, 0]], queries[members[:, -1]]
    above, widths = positions[firsts], positions[firsts] + lasts - firsts + 1
    ancestors = np.full((len(firsts), widths.max()), len(positions))
    keys = firsts
    while (is_there := keys != ROOT).any():
        ancestors[is_there, positions[keys[is_there]]] = keys[is_there]
        keys = np.where(is_there, parents[keys], ROOT)
    blocks, order = list[Blocks](), np.empty(len(queries), dtype=np.int64)
    by_width, seen = np.argsort(-widths, kind="stable"), 0
    while len(by_width):
        width = widths[by_width[0]]
        here, by_width = np.split(
            by_width, [int((widths[by_width] * SLACK + FEWEST >= width).sum())]
        )
        column = np.arange(width)
        later = firsts[here, None] + column - above[here, None]
        keys = np.where(column < above[here, None], ancestors[here, :width], later)
        keys[column >= widths[here, None]] = len(positions)
        asking = queries[members[here]][:, :, None]
        sees = (keys[:, None, :] <= asking) & (asking < ends[keys][:, None, :])
        mask = torch.from_numpy(np.where(sees, np.float32(0), np.float32("-inf")))[:, None]
        keys = np.minimum(keys, len(positions) - 1)
        blocks.append(Blocks(torch.from_numpy(members[here]), torch.from_numpy(keys), mask))
        order[members[here]] = seen + np.arange(members[here].size).reshape(-1, size)
        seen += members[here].size
    return Queries(blocks, torch.from_numpy(order))
