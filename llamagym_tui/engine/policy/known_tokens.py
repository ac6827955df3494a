"""Keys and values of what a version of the policy has read, as a tree of tokens: what begins alike is computed once.

A node is a token after all that stands before it, the prefix included, so its keys and values are those of every
conversation that begins like this. They are copied into the rows of a cache, which a forward reads as they lie.
`PromptMemory` has what a forward after a prompt gave: hidden states, and no keys or values.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import torch
from torch import Tensor

from llamagym_tui.engine.model.caches import RaggedCache
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.tokens.token_tree import ROOT, TokenTree

HELD = 64 * 2**20
"""Bytes held at most; once they are full, all are let go."""
Node = int | tuple[int, ...]
"""A node, by its number; what stands before the first token is a prefix."""


class KnownTokens:
    """The tree of tokens that the present version of the policy has read, with their keys and values."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[Node, int], int] = {}
        """Numbers of nodes, by what stands before each, and its token."""
        self._pools: list[Tensor] = []
        """Keys and values (N, K, E) of N nodes, for each of the cache's buffers: K heads of E numbers."""

    def clear(self) -> None:
        self._nodes.clear()

    def path(self, prefix: tuple[int, ...], ids: Sequence[int]) -> list[int]:
        """Nodes of the ids after a prefix, up to the first that is not known."""
        at: Node = prefix
        found: list[int] = []
        for token in ids:
            node = self._nodes.get((at, token))
            if node is None:
                break
            found.append(node)
            at = node
        return found

    def copy(self, cache: RaggedCache, places: Sequence[tuple[int, int, int]]) -> None:
        """Write nodes to a cache; each place is a row, a column, and the node that comes there."""
        rows, columns, nodes = torch.tensor(places, device=self._pools[0].device).T
        for buffer, pool in zip(cache.buffers, self._pools, strict=True):
            buffer[rows, :, columns] = pool[nodes]

    def add(
        self,
        cache: RaggedCache,
        read: Sequence[tuple[int, tuple[int, ...], Sequence[int], TokenTree]],
    ) -> None:
        """Remember what rows of a cache have, if there is room.

        Args:
            cache: what has just been computed is in it.
            read: a row, the prefix that it begins with, the ids after it, and the tree behind these, for each row.
        """
        if not self._pools:
            size = sum(buffer[0, :, 0].nbytes for buffer in cache.buffers)  # of one token
            self._pools = [
                buffer.new_empty(HELD // size, *buffer.shape[1::2]) for buffer in cache.buffers
            ]
        room = len(self._pools[0])
        more = sum(len(ids) + len(tree) for _, _, ids, tree in read)
        if len(self._nodes) + more > room:
            self.clear()
        if more > room:
            return
        new: list[tuple[int, int, int]] = []

        def node(before: Node, token: int, row: int, column: int) -> int:
            """The node of a token after another one; a new one is copied from its place in the cache, below."""
            next_number = len(self._nodes)
            found = self._nodes.setdefault((before, token), next_number)
            if found == next_number:
                new.append((row, column, found))
            return found

        for row, prefix, ids, tree in read:
            at: Node = prefix
            for column, token in enumerate(ids, len(prefix)):
                at = node(at, token, row, column)
            behind: dict[int, Node] = {ROOT: at}
            begin = len(prefix) + len(ids)
            for index, (token, parent) in enumerate(zip(tree.ids, tree.parents, strict=True)):
                behind[index] = node(behind[parent], token, row, begin + index)
        if new:
            rows, columns, nodes = torch.tensor(new, device=self._pools[0].device).T
            for buffer, pool in zip(cache.buffers, self._pools, strict=True):
                pool[nodes] = buffer[rows, :, columns]


REMEMBERED = 64 * 2**20
"""Bytes held at most; once they are full, all are let go."""
Key = tuple[TokenTree, tuple[int, ...], tuple[int, ...]] | int
"""The tree behind a prompt, the prefix, and the ids after it; a number stands for a prompt that is not remembered."""


class PromptMemory:
    """What a forward after a prompt gave, while the policy is the same: a prompt that comes again needs no forward."""

    def __init__(self, most: int | None = None) -> None:
        """A memory of so many bytes at most. None: `REMEMBERED`."""
        self._most = REMEMBERED if most is None else most
        self._known: dict[Key, Encoded] = {}
        self._bytes = 0
        self._looked_up = 0
        """Prompts with trees since the last `take_share`."""
        self._met = 0
        """Those of them that needed no forward of their own."""

    def take_share(self) -> float:
        """Share of the prompts with trees since the last call that needed no forward of their own; 0 without any."""
        share = self._met / max(self._looked_up, 1)
        self._looked_up = 0
        self._met = 0
        return share

    def clear(self) -> None:
        self._known.clear()
        self._bytes = 0

    def share_of(self, keys: Collection[Key]) -> float:
        """Share of the prompts that are remembered that these are; 0 if none is."""
        return sum(key in self._known for key in keys) / max(len(self._known), 1)

    def row(self, key: Key) -> Encoded | None:
        """What is known of one prompt. None: nothing."""
        return self._known.get(key)

    def rows(
        self,
        keys: Sequence[Key],
        compute: Callable[[list[int]], Encoded],
        is_whole: Callable[[Encoded], bool] = lambda row: True,
    ) -> Encoded:
        """One row for each of B prompts.

        Args:
            keys: equal for equal prompts; a number for one that is computed in any case, and not remembered.
            compute: rows for the prompts of these indices, ascending.
            is_whole: whether a row that is known still has all that is needed; else it is computed again.
        """
        found = {
            key: self._known[key]
            for key in keys
            if key in self._known and is_whole(self._known[key])
        }
        new: dict[Key, int] = {}
        for index, key in enumerate(keys):
            if key not in found:
                new.setdefault(key, index)
        looked_up = _with_trees(keys)
        self._looked_up += looked_up
        self._met += looked_up - _with_trees(new)
        if new:
            made = dict(zip(new, compute(list(new.values())).rows(), strict=True))
            found |= made
            self._remember({key: row for key, row in made.items() if not isinstance(key, int)})
        return Encoded.stacked([found[key] for key in keys])

    def _remember(self, made: dict[Key, Encoded]) -> None:
        size = sum(row.bytes for row in made.values())
        if self._bytes + size > self._most:
            self.clear()
        if size <= self._most:
            self._known |= made
            self._bytes += size


def _with_trees(keys: Iterable[Key]) -> int:
    """The number of prompts behind which something is computed ahead."""
    return sum(not isinstance(key, int) and len(key[0]) > 0 for key in keys)
