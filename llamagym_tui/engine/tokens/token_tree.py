"""Conversations that begin alike, as trees of tokens: what they share is computed once.

A tree is one row of a forward. Its nodes are tokens in columns; a token sees its ancestors and itself, so every path
from the root is a sequence computed as if it stood alone, gradient included. Trees begin after a prefix that all
rows of the forward share. Notation: R rows, C columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")
ROOT = -1
TREE_COLUMNS = 128
"""Columns up to which a tree takes any row: one forward of few wide trees beats many narrow ones."""
PRODUCT_COST = 400
"""Cost of a token's matrix products, in columns of attention that cost as much: about four times the hidden size."""


class TokenTree:
    def __init__(self) -> None:
        self.ids: list[int] = []
        """Token of each column."""
        self.parents: list[int] = []
        """Column that stands before each; `ROOT` for the first of a sequence."""
        self.depths: list[int] = []
        """Tokens between the root and each."""
        self._children: dict[tuple[int, int], int] = {}

    @classmethod
    def of(cls, ids: Sequence[int]) -> TokenTree:
        tree = cls()
        tree.insert(ids)
        return tree

    def after(self, prefix: Sequence[int]) -> TokenTree:
        """The tree behind a prefix, in columns that come before its own; nothing can be inserted into it."""
        tree, before = TokenTree(), len(prefix)
        tree.ids = [*prefix, *self.ids]
        tree.parents = [*range(ROOT, before - 1), *(parent + before for parent in self.parents)]
        tree.depths = [*range(before), *(depth + before for depth in self.depths)]
        return tree

    def __len__(self) -> int:
        return len(self.ids)

    def insert(self, ids: Sequence[int]) -> list[int]:
        """Add a sequence; the column of each of its ids."""
        path, at = [], ROOT
        for depth, token in enumerate(ids):
            child = self._children.get((at, token))
            if child is None:
                child = self._children[at, token] = len(self.ids)
                self.ids.append(token)
                self.parents.append(at)
                self.depths.append(depth)
            path.append(child)
            at = child
        return path

    def child(self, column: int, token: int) -> int | None:
        """The column of a token that follows a column (`ROOT`: that begins); None if there is none."""
        return self._children.get((column, token))

    def columns_for(self, ids: Sequence[int]) -> int:
        """How many columns a sequence would add."""
        at = ROOT
        for known, token in enumerate(ids):
            child = self._children.get((at, token))
            if child is None:
                return len(ids) - known
            at = child
        return 0

    def takes(self, ids: Sequence[int], most: int | None = None) -> bool:
        """Whether a sequence has room among `most` columns; None: whether it costs less on this tree than alone.

        On a tree of S columns, n new ones cost their products and attention of (S + n)² - S²; alone, L cost theirs
        and L².
        """
        size, new, length = len(self), self.columns_for(ids), len(ids)
        if most is not None:
            return size + new <= most
        return size + new <= TREE_COLUMNS or new * (PRODUCT_COST + 2 * size + new) <= length * (
            PRODUCT_COST + length
        )

    def paths(self) -> list[list[int]]:
        """Columns from the root to each leaf; of an empty tree, one path without any."""
        inner, found = set(self.parents), []
        for leaf in (column for column in range(len(self)) if column not in inner):
            path, at = [], leaf
            while at != ROOT:
                path.append(at)
                at = self.parents[at]
            found.append(path[::-1])
        return found or [[]]

    def visible(self, width: int) -> np.ndarray:
        """(C, C) bool, C at least the tree's columns: which columns each column sees; padding sees itself alone."""
        seen = np.eye(width, dtype=bool)
        for column, parent in enumerate(self.parents):
            if parent != ROOT:
                seen[column] |= seen[parent]
        return seen


@dataclass(frozen=True, slots=True)
class TreeRows:
    """Trees as tensors, padded on the right to one width."""

    ids: Tensor
    """(R, C)."""
    depths: Tensor
    """(R, C) position of each token after the prefix."""
    trees: Sequence[TokenTree]

    @property
    def visible(self) -> Tensor:
        """(R, C, C) bool: which columns each token sees."""
        seen = np.stack([tree.visible(self.ids.shape[1]) for tree in self.trees])
        return torch.from_numpy(seen).to(self.ids.device)


def tree_rows(trees: Sequence[TokenTree], device: torch.device) -> TreeRows:
    width = max(map(len, trees))

    def padded(columns: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(
            [[*column, *[0] * (width - len(column))] for column in columns], device=device
        )

    return TreeRows(
        padded([tree.ids for tree in trees]), padded([tree.depths for tree in trees]), trees
    )


def of_similar_size(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The largest first, in groups of up to `most` tokens, padding included (one item may have more)."""
    group: list[T] = []
    for item in sorted(items, key=size, reverse=True):
        if group and size(group[0]) * (len(group) + 1) > most:
            yield group
            group = []
        group.append(item)
    if group:
        yield group


class Branch(NamedTuple):
    """A place in a reply at which admissible replies part."""

    at: int
    """Index of the token in the reply."""
    children: tuple[int, ...]
    """Ids that continue an admissible reply here; two or more."""


class ActionTrie:
    """The admissible replies of an agent, and where they part: the probabilities of a branching node's children,
    renormalised, are the policy's distribution over actions there. A reply off the trie (free text) has no branches."""

    def __init__(self, replies: Iterable[Sequence[int]], words: Iterable[int] = ()) -> None:
        self.replies = tuple(tuple(reply) for reply in replies)
        """Ids of each, ends included."""
        self.words = tuple(words)
        """Words of each."""
        self.tree = TokenTree()
        """What a model must read to score every reply: all ids but the last ones."""
        self.paths = tuple(tuple(self.tree.insert(reply[:-1])) for reply in self.replies)
        """Of each reply, columns of the tree."""
        children: dict[int, set[int]] = {}
        for reply, path in zip(self.replies, self.paths, strict=True):
            for before, token in zip((ROOT, *path), reply, strict=True):
                children.setdefault(before, set()).add(token)
        self._children = {before: tuple(sorted(tokens)) for before, tokens in children.items()}

    def __bool__(self) -> bool:
        return bool(self.replies)

    def branches(self, reply: Sequence[int]) -> tuple[Branch, ...]:
        """The branching places that a reply passes while it stays on the trie."""
        return tuple(
            Branch(at, children)
            for at, (token, children) in enumerate(
                zip(reply, self.continuations(reply), strict=False)
            )
            if token in children and len(children) > 1
        )

    def continuations(self, reply: Sequence[int]) -> list[tuple[int, ...]]:
        """The ids that continue an admissible reply, ascending: at each place of a reply up to where it leaves them."""
        found: list[tuple[int, ...]] = []
        node: int | None = ROOT
        for token in reply:
            if node is None or node not in self._children:
                break
            found.append(self._children[node])
            node = self.tree.child(node, token)
        return found
