"""Where admissible replies part, token by token.

The admissible replies of an agent form a trie over token ids. A sampled reply that stays on the trie passes its
branching nodes; the probabilities of a node's children, renormalised, are the policy's distribution over actions
there. Replies off the trie (free text) have no branches. The trie is a `TokenTree` too: what the sampler computes
ahead, and what replies are scored on.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from llamagym_tui.engine.tokens.token_tree import ROOT, TokenTree


class Branch(NamedTuple):
    """A place in a reply at which admissible replies part."""

    at: int
    """Index of the token in the reply."""
    children: tuple[int, ...]
    """Ids that continue an admissible reply here; two or more."""


class ActionTrie:
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
            for at, (token, children) in enumerate(zip(reply, self.continuations(reply), strict=False))
            if token in children and len(children) > 1
        )

    def continuations(self, reply: Sequence[int]) -> list[tuple[int, ...]]:
        """The ids that continue an admissible reply, ascending: at each place of a reply up to where it leaves them."""
        found: list[tuple[int, ...]] = []
        node: int | None = ROOT
        for token in reply:
            children = self._children.get(node, ()) if node is not None else ()
            if children:
                found.append(children)
            if token not in children:
                break
            node = self.tree.child(node, token) if node is not None else None
        return found
