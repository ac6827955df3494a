"""Conversations that begin alike, as a tree of tokens: shared beginnings are computed once.

The textbook gives each conversation a row of the batch. Episodes of one environment begin with the same system prompt,
and a policy that chooses among replies reads each of them after the same prompt, so most rows would repeat one another.
The state of a token depends only on the tokens before it. The sequences "a b c" and "a b d", for example, are a tree of
four columns:

    column     0  1  2  3
    token      a  b  c  d
    parent     -  0  1  1
    depth      0  1  2  2

Every path from the root is computed as if it stood alone, and the gradients of paths add up where they share a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")
P = TypeVar("P")
ROOT = -1
"""The parent of the first token of a sequence."""


class TokenTree:
    """Sequences of tokens with their common beginnings once; a parent stands in an earlier column than its children."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        """Token of each column."""
        self.parents: list[int] = []
        """Column before each, or `ROOT`."""
        self.depths: list[int] = []
        """Tokens before each on its path."""
        self.row_tokens = 0
        """Tokens of all paths as rows of their own."""
        self._children: dict[tuple[int, int], int] = {}
        """Column of a token after a column."""
        self._inner: set[int] = {ROOT}
        """Columns that have children."""

    def __len__(self) -> int:
        return len(self.ids)

    def insert(self, ids: Sequence[int], after: int = ROOT) -> list[int]:
        """Add a sequence after a column; the column of each of its ids."""
        path: list[int] = []
        at = after
        for token in ids:
            child = self._children.get((at, token))
            if child is None:
                child = len(self.ids)
                depth = 0 if at == ROOT else self.depths[at] + 1
                # A path gets longer by one, or a new path begins here.
                self.row_tokens += depth + 1 if at in self._inner else 1
                self._inner.add(at)
                self._children[at, token] = child
                self.ids.append(token)
                self.parents.append(at)
                self.depths.append(depth)
            path.append(child)
            at = child
        return path

    def child(self, column: int, token: int) -> int | None:
        """The column of a token after a column or `ROOT`. None: there is none."""
        return self._children.get((column, token))

    def paths(self) -> list[list[int]]:
        """Columns from the root to each leaf."""
        found: list[list[int]] = []
        for leaf in range(len(self)):
            if leaf in self._inner:
                continue
            upwards: list[int] = []
            at = leaf
            while at != ROOT:
                upwards.append(at)
                at = self.parents[at]
            found.append(upwards[::-1])
        return found


class ForwardLimits(NamedTuple):
    """The size of one forward; a batch that is larger takes several."""

    tokens: int
    """Columns of a flat tree, or tokens of rows."""
    scored: float = math.inf
    """Tokens whose logits are needed."""
    flat: bool = False
    """True if a forward computes each column once, False if it computes each path as a row."""


def grouped(
    items: Iterable[T],
    insert: Callable[[TokenTree, T], P],
    limits: ForwardLimits,
    scored: Callable[[T], int] = lambda item: 0,
) -> Iterator[tuple[TokenTree, list[tuple[T, P]]]]:
    """Trees for one forward each, with their items and where these stand.

    Args:
        items: in an order in which neighbours begin alike.
        insert: puts an item on a tree; its result stands beside the item.
        limits: of a forward, which the last item of a tree may exceed.
        scored: tokens of an item whose logits are needed.
    """
    tree = TokenTree()
    members: list[tuple[T, P]] = []
    total = 0
    for item in items:
        size = len(tree) if limits.flat else tree.row_tokens
        more = scored(item)
        if members and (size >= limits.tokens or total + more > limits.scored):
            yield tree, members
            tree = TokenTree()
            members = []
            total = 0
        members.append((item, insert(tree, item)))
        total += more
    if members:
        yield tree, members


def padded(values: Sequence[T], width: int, filler: T) -> list[T]:
    """Values with fillers behind them, up to a width."""
    return list(values) + [filler] * (width - len(values))


class Branch(NamedTuple):
    """A place in a reply at which admissible replies part."""

    at: int
    """Index of the token in the reply."""
    children: tuple[int, ...]
    """Two or more ids that continue an admissible reply here."""


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
            actions: the action that each names, counted from 0. None: one action each, in order.
        """
        self.replies = tuple(tuple(reply) for reply in replies)
        self.actions = tuple(range(len(self.replies)) if actions is None else actions)
        """The action that each reply names; several may name the same."""
        self.words = tuple(words)
        self.tree = TokenTree()
        """The tokens that a model reads to score every reply: all but the last of each."""
        self.paths = tuple(tuple(self.tree.insert(reply[:-1])) for reply in self.replies)
        """The columns of each reply on the tree."""
        children: dict[int, set[int]] = {}
        for reply, path in zip(self.replies, self.paths, strict=True):
            for before, token in zip((ROOT, *path), reply, strict=True):
                children.setdefault(before, set()).add(token)
        self.children = {before: tuple(sorted(tokens)) for before, tokens in children.items()}
        """Ids that continue a reply after each column, ascending, last ids included."""

    def __bool__(self) -> bool:
        return bool(self.replies)

    @property
    def tokens(self) -> set[int]:
        """All ids of admissible replies."""
        return {token for reply in self.replies for token in reply}

    @property
    def partings(self) -> dict[int, tuple[int, ...]]:
        """The ids with which replies go on, by the column after which they part."""
        return {before: tokens for before, tokens in self.children.items() if len(tokens) > 1}

    @property
    def parting_tokens(self) -> set[int]:
        """The ids with which replies go on where they part."""
        return {token for tokens in self.partings.values() for token in tokens}

    def branches(self, reply: Sequence[int]) -> tuple[Branch, ...]:
        """The branching places that a reply passes while it stays on the trie."""
        places = enumerate(zip(reply, self.continuations(reply), strict=False))
        return tuple(
            Branch(at, children)
            for at, (token, children) in places
            if token in children and len(children) > 1
        )

    def continuations(self, reply: Sequence[int]) -> list[tuple[int, ...]]:
        """The ids that continue an admissible reply at each place of a reply, up to where it leaves them."""
        found: list[tuple[int, ...]] = []
        node: int | None = ROOT
        for token in reply:
            if node is None or node not in self.children:
                break
            found.append(self.children[node])
            node = self.tree.child(node, token)
        return found


NO_REPLIES = ActionTrie(())
"""The trie of turns whose replies are not computed ahead."""
