"""Conversations that begin alike, as trees of tokens: what they share is computed once.

The textbook gives each conversation a row of the batch. Episodes of one environment begin with the same system prompt,
often with the same first observations, and a policy that chooses among replies reads each of them after the same
prompt: most of such rows would be the same. A causal model computes of a token only what depends on the tokens before
it, so tokens with the same past have the same states, and need to be computed once. The sequences "a b c" and "a b d",
for example, are a tree of four tokens in four columns:

    column     0  1  2  3
    token      a  b  c  d
    parent     -  0  1  1
    depth      0  1  2  2

A tree is one row of a forward, and its nodes are tokens in columns. The mask lets a token see its ancestors and itself,
not all columns to its left, and its position is its depth, not its column. So every path from the root is a sequence
computed as if it stood alone. Gradients are those of the sequences, too: where paths share a token, theirs add up in
it. Trees begin after a prefix that all rows of the forward share. Notation: R rows, C columns.
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
"""What stands in the place of a parent where there is none, before the first token of a sequence."""
TREE_COLUMNS = 128
"""Columns up to which a tree takes any sequence: one forward of few wide trees beats many narrow ones."""
PRODUCT_COST = 400
"""Cost of a token's matrix products, in columns of attention that cost as much: about four times the hidden size."""


class TokenTree:
    """Sequences of tokens, with what they have in common once; a parent always stands in an earlier column."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        """Token of each column."""
        self.parents: list[int] = []
        """Column that stands before each; `ROOT` for the first of a sequence."""
        self.depths: list[int] = []
        """Tokens between the root and each."""
        self._children: dict[tuple[int, int], int] = {}
        """The column of a token that follows a column, by these two."""

    @classmethod
    def of(cls, ids: Sequence[int]) -> TokenTree:
        """The tree of one sequence, which has no branches."""
        tree = cls()
        tree.insert(ids)
        return tree

    def after(self, prefix: Sequence[int]) -> TokenTree:
        """The tree behind a prefix, in columns that come before its own; nothing can be inserted into it."""
        before = len(prefix)
        tree = TokenTree()
        tree.ids = [*prefix, *self.ids]
        # The shift moves ROOT, too: what began a sequence now follows the prefix's last token, in column before - 1.
        tree.parents = [*range(ROOT, before - 1), *(parent + before for parent in self.parents)]
        tree.depths = [*range(before), *(depth + before for depth in self.depths)]
        return tree

    def __len__(self) -> int:
        return len(self.ids)

    def insert(self, ids: Sequence[int]) -> list[int]:
        """Add a sequence; the column of each of its ids."""
        path: list[int] = []
        at = ROOT
        for depth, token in enumerate(ids):
            child = self._children.get((at, token))
            if child is None:  # the sequence leaves the tree here: a new column
                child = len(self.ids)
                self._children[at, token] = child
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
        """Whether a sequence has room among `most` columns; None: whether it costs less on this tree than alone."""
        size = len(self)
        new = self.columns_for(ids)
        length = len(ids)
        if most is not None:
            return size + new <= most
        if size + new <= TREE_COLUMNS:
            return True
        # A sequence that shares much saves the products of what it shares. But a forward of a tree compares every
        # column with every other one, also those of other branches, which the mask hides: wide trees pay for that.
        # Attention of the tree grows from size² to (size + new)², which is new * (2 * size + new) more.
        cost_here = new * (PRODUCT_COST + 2 * size + new)
        cost_alone = length * (PRODUCT_COST + length)
        return cost_here <= cost_alone

    def paths(self) -> list[list[int]]:
        """Columns from the root to each leaf; of an empty tree, one path without any."""
        inner = set(self.parents)
        leaves = [column for column in range(len(self)) if column not in inner]
        found: list[list[int]] = []
        for leaf in leaves:
            upwards: list[int] = []
            at = leaf
            while at != ROOT:
                upwards.append(at)
                at = self.parents[at]
            found.append(upwards[::-1])
        return found or [[]]

    def visible(self, width: int) -> np.ndarray:
        """(C, C) bool, C at least the tree's columns: which columns each column sees; padding sees itself alone."""
        seen = np.eye(width, dtype=bool)
        # The textbook's mask is the lower triangle. Here a token sees itself and what its parent sees, whose row of the
        # mask is complete by then, because it stands in an earlier column.
        for column, parent in enumerate(self.parents):
            if parent != ROOT:
                seen[column] |= seen[parent]
        return seen


@dataclass(frozen=True, slots=True)
class TreeRows:
    """Trees as tensors, padded on the right to one width."""

    ids: Tensor
    """(R, C) token in each column; 0 in padding."""
    depths: Tensor
    """(R, C) position of each token after the prefix."""
    trees: Sequence[TokenTree]
    """The R trees themselves."""

    @property
    def visible(self) -> Tensor:
        """(R, C, C) bool: which columns each token sees."""
        seen = np.stack([tree.visible(self.ids.shape[1]) for tree in self.trees])
        return torch.from_numpy(seen).to(self.ids.device)


def tree_rows(trees: Sequence[TokenTree], device: torch.device) -> TreeRows:
    """Trees as the rows of one forward."""
    width = max(map(len, trees))
    ids = [padded(tree.ids, width, 0) for tree in trees]
    depths = [padded(tree.depths, width, 0) for tree in trees]
    return TreeRows(torch.tensor(ids, device=device), torch.tensor(depths, device=device), trees)


def padded(values: Sequence[T], width: int, filler: T) -> list[T]:
    """Values with fillers behind them, up to a width."""
    return list(values) + [filler] * (width - len(values))


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
    """The admissible replies of an agent, and where they part.

    At a branching node, the probabilities of its children, renormalised, are the policy's distribution over actions.
    A reply off the trie (free text) has no branches.
    """

    def __init__(
        self,
        replies: Iterable[Sequence[int]],
        words: Iterable[int] = (),
        actions: Iterable[int] | None = None,
    ) -> None:
        """The trie of some replies.

        Args:
            replies: the ids of each, ends included.
            words: the number of words of each.
            actions: the action that each names, counted from 0. None: each another one, in order.
        """
        self.replies = tuple(tuple(reply) for reply in replies)
        """The ids of each reply, ends included."""
        self.actions = tuple(range(len(self.replies)) if actions is None else actions)
        """The action that each reply names, counted from 0; several may name the same."""
        self.words = tuple(words)
        """The number of words of each reply."""
        self.tree = TokenTree()
        """What a model must read to score every reply: all ids but the last ones, after which nothing is predicted."""
        self.paths = tuple(tuple(self.tree.insert(reply[:-1])) for reply in self.replies)
        """The columns of each reply on the tree."""
        children: dict[int, set[int]] = {}
        for reply, path in zip(self.replies, self.paths, strict=True):
            # Each token follows the one before it on the tree, the first one the prompt.
            for before, token in zip((ROOT, *path), reply, strict=True):
                children.setdefault(before, set()).add(token)
        self.children = {before: tuple(sorted(tokens)) for before, tokens in children.items()}
        """Ids that continue a reply after each column, ascending; unlike the tree's, the last ids too."""

    def __bool__(self) -> bool:
        return bool(self.replies)

    @property
    def tokens(self) -> set[int]:
        """All ids of admissible replies."""
        return {token for reply in self.replies for token in reply}

    @property
    def partings(self) -> dict[int, tuple[int, ...]]:
        """The ids with which replies go on, by the column after which they part (`ROOT`: after the prompt)."""
        return {before: tokens for before, tokens in self.children.items() if len(tokens) > 1}

    @property
    def parting_tokens(self) -> set[int]:
        """The ids with which replies go on where they part."""
        return {token for tokens in self.partings.values() for token in tokens}

    def branches(self, reply: Sequence[int]) -> tuple[Branch, ...]:
        """The branching places that a reply passes while it stays on the trie."""
        # One place more than continuations may be left, where the reply has left the trie.
        places = enumerate(zip(reply, self.continuations(reply), strict=False))
        return tuple(
            Branch(at, children)
            for at, (token, children) in places
            if token in children and len(children) > 1
        )

    def continuations(self, reply: Sequence[int]) -> list[tuple[int, ...]]:
        """The ids that continue an admissible reply, ascending: at each place of a reply up to where it leaves them."""
        found: list[tuple[int, ...]] = []
        node: int | None = ROOT
        for token in reply:
            if node is None or node not in self.children:
                break
            found.append(self.children[node])
            node = self.tree.child(node, token)
        return found
