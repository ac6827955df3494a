"""Flat trees: preorder, and blocks in which each query sees its ancestors and itself."""

from __future__ import annotations

import random

import numpy as np
import pytest

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


def test_a_tree_made_breadth_first_stands_in_preorder_behind_its_prefix():
    trees = [tree_of([10, 11], [20], [10, 12]), tree_of([30, 31])]
    flat = flat_tree([1, 2], trees, np.array([1, 0, 0]), np.array([1, 2, 3]))
    assert flat.ids.tolist() == [1, 2, 10, 11, 12, 20, 30, 31]
    assert flat.positions.tolist() == [0, 1, 2, 3, 3, 2, 2, 3]
    assert (flat.read.tolist(), flat.rows.tolist(), flat.columns.tolist()) == (
        [4, 5, 7],
        [0, 0, 1],
        [3, 2, 1],
    )
    every = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 5], [0, 1, 6], [0, 1, 6, 7]]
    assert seen(flat.every) == every
    assert seen(flat.last) == [every[4], every[5], every[7]]


@pytest.mark.parametrize("prefix", [[], [7] * 3, [7] * 40])
def test_in_blocks_of_any_widths_each_query_sees_its_path_and_nothing_else(monkeypatch, prefix):
    monkeypatch.setattr(module, "FEWEST", 4)
    monkeypatch.setattr(module, "GATHERED", 0.5)
    draw = random.Random(3)
    trees = [
        tree_of(*([draw.randrange(3) for _ in range(draw.randrange(1, 30))] for _ in range(12)))
        for _ in range(3)
    ]
    places = [
        (row, column)
        for row, tree in enumerate(trees)
        for column in range(len(tree))
        if draw.random() < 0.3
    ]
    flat = flat_tree(prefix, trees, *np.array(places).T)
    assert len(flat.every.blocks) > 1, "widths differ"
    assert asked(flat.every) == list(range(len(flat.ids)))
    assert asked(flat.last) == list(range(len(places)))
    assert seen(flat.every) == paths(flat)
    assert seen(flat.last) == [paths(flat)[token] for token in flat.read.tolist()]
    for token, row, column in zip(
        flat.read.tolist(), flat.rows.tolist(), flat.columns.tolist(), strict=True
    ):
        assert (flat.ids[token], flat.positions[token]) == (
            trees[row].ids[column],
            len(prefix) + trees[row].depths[column],
        )
