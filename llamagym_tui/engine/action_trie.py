"""Where admissible replies part, token by token.

The admissible replies of an agent form a trie over token ids. A sampled reply that stays on the trie passes its
branching nodes; the probabilities of a node's children, renormalised, are the policy's distribution over actions
there. Replies off the trie (free text) have no branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

_Node = dict[int, "_Node"]


class Branch(NamedTuple):
    """A place in a reply at which admissible replies part."""

    at: int
    """Index of the token in the reply."""
    children: tuple[int, ...]
    """Ids that continue an admissible reply here; two or more."""


class ActionTrie:
    """Admissible replies as a trie of token ids."""

    def __init__(self, replies: Iterable[Sequence[int]]) -> None:
        self._root: _Node = {}
        for reply in replies:
            node = self._root
            for token in reply:
                node = node.setdefault(token, {})

    def branches(self, reply: Sequence[int]) -> tuple[Branch, ...]:
        """The branching places that a reply passes while it stays on the trie."""
        found: list[Branch] = []
        node = self._root
        for at, token in enumerate(reply):
            if len(node) > 1 and token in node:
                found.append(Branch(at, tuple(sorted(node))))
            if token not in node:
                break
            node = node[token]
        return tuple(found)
