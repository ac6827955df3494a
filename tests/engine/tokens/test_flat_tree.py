"""Flat trees: preorder, and blocks in which each query sees its ancestors and itself."""

from __future__ import annotations

import random

import pytest
import torch

from llamagym_tui.engine.tokens import flat_tree as module
from llamagym_tui.engine.tokens.flat_tree import FlatTree, Queries, flat_tree
from llamagym_tui.engine.tokens.token_tree import TokenTree


def tree_of(*paths: list[int]) -> TokenTree:
    tree = TokenTree()
    for path in paths:
        tree.insert(path)
    return tree


def seen(queries: Queries) -> list[list[int]]:
    """Of each query, the tokens that it sees."""
    found = [
        sorted(keys[mask == 0].tolist())
        for blocks in queries.blocks
        for keys, masks in zip(blocks.keys, blocks.mask[:, 0], strict=True)
        for mask in masks
    ]
    return [found[place] for place in queries.order.tolist()]


def asked(queries: Queries) -> list[int]:
    """Which query stands at each place that a result is taken from."""
    found = [query for blocks in queries.blocks for query in blocks.queries.flatten().tolist()]
    return [found[place] for place in queries.order.tolist()]


def paths(flat: FlatTree) -> list[list[int]]:
    """Ancestors of each token and itself, by the positions of what stands before it."""
    found: list[list[int]] = []
    for token, position in enumerate(flat.positions.tolist()):
        above = [] if position == 0 else next(p for p in reversed(found) if len(p) == position)
        found.append([*above, token])
    return found


def test_a_tree_made_breadth_first_stands_in_preorder():
    tree = tree_of([1, 2], [1, 2, 10, 11], [1, 2, 20], [1, 2, 10, 12], [1, 2, 30, 31])
    flat = flat_tree(tree, [7, 3, 5], torch.device("cpu"))
    assert flat.ids.tolist() == [1, 2, 10, 11, 12, 20, 30, 31]
    assert flat.positions.tolist() == [0, 1, 2, 3, 3, 2, 2, 3]
    assert (flat.read.tolist(), flat.columns.tolist()) == ([3, 4, 7], [3, 5, 7])
    every = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 5], [0, 1, 6], [0, 1, 6, 7]]
    assert seen(flat.every) == every
    assert seen(flat.last) == [every[3], every[4], every[7]]


@pytest.mark.parametrize("prefix", [[], [7] * 40])
def test_in_blocks_of_any_widths_each_query_sees_its_path_and_nothing_else(monkeypatch, prefix):
    monkeypatch.setattr(module, "FEWEST", 4)
    monkeypatch.setattr(module, "GATHERED", 0.5)
    draw = random.Random(3)
    tree = tree_of(
        *([*prefix, *(draw.randrange(3) for _ in range(draw.randrange(1, 30)))] for _ in range(36))
    )
    read = [column for column in range(len(tree)) if draw.random() < 0.3]
    flat = flat_tree(tree, read, torch.device("cpu"))
    assert len(flat.every.blocks) > 1, "widths differ"
    assert asked(flat.every) == list(range(len(flat.ids)))
    assert asked(flat.last) == list(range(len(read)))
    assert seen(flat.every) == paths(flat)
    assert seen(flat.last) == [paths(flat)[token] for token in flat.read.tolist()]
    for token, column in zip(flat.read.tolist(), flat.columns.tolist(), strict=True):
        assert (flat.ids[token], flat.positions[token]) == (tree.ids[column], tree.depths[column])
