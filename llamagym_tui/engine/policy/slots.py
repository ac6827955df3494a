"""Slots: conversations whose keys and values are kept, each continued with new ids only.

The k-th turn costs its own tokens. A system prompt is computed once per policy version and copied into slots, and so
is what a new conversation has in common with others of the version; those whose prompts differ much in length are
computed in forwards of their own. Behind each prompt a tree of possible replies may be computed in the same forward;
the path of the actual reply is kept. Notation: B rows, M nodes of the tree, W columns of the cache.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from llamagym_tui.engine.model.caches import RaggedCache
from llamagym_tui.engine.model.forward import Backbone, Encoded, Mask
from llamagym_tui.engine.policy.known_tokens import KnownTokens
from llamagym_tui.engine.tokens.token_tree import TokenTree

FORWARD_COST = 256
"""Tokens of padding that a forward of its own is worth: about what its overhead costs a small model."""


class Slots:
    def __init__(self, backbone: Backbone, count: int) -> None:
        self.backbone, self.count = backbone, count
        self._cache = RaggedCache(count, backbone.layers)
        self._lengths = [0] * count
        self._prefix_in: list[tuple[int, ...] | None] = [None] * count
        self._fresh: set[int] = set()
        self._recorded: dict[tuple[int, ...], Cache] = {}
        self._known = KnownTokens()
        self._paths: dict[int, Sequence[int]] = {}
        """Of replies on their trees, whose columns have not been moved to the end of the conversation yet."""

    def forget(self) -> None:
        """Drop the keys and values of prefixes and of what followed them, which older weights computed."""
        self._recorded.clear()
        self._known.clear()
        self._prefix_in = [None] * self.count

    def restart(self, slot: int, prefix: tuple[int, ...]) -> None:
        self._lengths[slot] = len(prefix)
        self._paths.pop(slot, None)
        self._fresh.add(slot)
        if self._prefix_in[slot] == prefix:
            return
        self._prefix_in[slot] = prefix
        if not prefix:
            return
        with self.backbone.unrecorded():
            if prefix not in self._recorded:
                self._recorded[prefix] = self.backbone.record(prefix)
            self._cache.fill(slot, self._recorded[prefix], len(prefix))

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]
    ) -> Encoded:
        """Append prompts to slots, and compute a tree behind each; the slots end with their prompts.

        Args:
            slots: B distinct slots, ascending.
            prompts: ids that each slot has not seen yet, at least one.
            trees: of M possible replies at most; may be empty.
        Returns:
            B rows of 1 + M columns: the prompt's last token, then the nodes of its tree.
        """
        self._settle(slots)
        rests = [
            prompt[known:]
            for prompt, known in zip(prompts, self._take_known(slots, prompts), strict=True)
        ]
        nodes, index_of = max(map(len, trees)), {slot: index for index, slot in enumerate(slots)}
        most = max(map(len, rests)) + nodes
        parts: list[Encoded] = []
        order: list[int] = []
        for group in _of_similar_length(range(len(slots)), rests):
            among = self._bring_first([slots[index] for index in group], most)
            indices = [index_of[slot] for slot in among]
            own, behind = [rests[index] for index in indices], [trees[index] for index in indices]
            parts.append(self._forward(among, own, behind, nodes))
            begun = [
                (row, index) for row, index in enumerate(indices) if slots[index] in self._fresh
            ]
            read = [
                (row, self._prefix_in[slots[i]] or (), prompts[i], trees[i]) for row, i in begun
            ]
            self._known.add(self._cache, read)
            order += indices
        self.grow(slots, list(map(len, rests)))
        self._fresh.difference_update(slots)
        return Encoded.joined(parts, self._indices(order).argsort())

    def keep(
        self, slots: Sequence[int], trees: Sequence[TokenTree], paths: Sequence[Sequence[int]]
    ) -> None:
        """Let each slot go on after the path that its reply took on the tree."""
        for slot, path in zip(slots, paths, strict=True):
            if path:
                self._paths[slot] = path
                self._lengths[slot] += len(path)

    def append(self, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
        """Append one id to each slot; logits (B, V) of what follows."""
        logits = self.following(slots)(self._indices(ids))
        self.grow(slots, [1] * len(slots))
        return logits

    def following(self, slots: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """Computes one id (B,) more behind each slot, from call to call; logits (B, V) of what follows.

        Nothing is read from the device meanwhile. Slots keep what they `grow` by.
        """
        self._settle(slots)
        columns, width = self._columns(self._bring_first(slots, 0), 1)
        at = self._indices(self._cache.rows_of(slots))
        in_rows = at.argsort()
        prefixes = {self._prefix_in[slot] for slot in slots}
        shared = self._recorded.get(prefixes.pop() or ()) if len(prefixes) == 1 else None

        def following(ids: Tensor) -> Tensor:
            nonlocal columns, width
            encoded = self.backbone.encode_next(ids[in_rows], columns, width, self._cache, shared)
            columns, width = columns + 1, width + 1
            return encoded.logits_at(at, torch.zeros_like(at))

        return following

    def grow(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """Keep so many of the ids that were computed behind slots."""
        for slot, count in zip(slots, counts, strict=True):
            self._lengths[slot] += count

    def _indices(self, values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.backbone.device)

    def _columns(self, slots: Sequence[int], width: int) -> tuple[Tensor, int]:
        """(B, T) columns of new ids behind slots, and how many columns there are with them."""
        lengths = [self._lengths[slot] for slot in slots]
        return self._indices(lengths)[:, None] + torch.arange(
            width, device=self.backbone.device
        ), max(lengths) + width

    def _bring_first(self, slots: Sequence[int], more: int) -> list[int]:
        filled = [length + more for length in self._lengths]
        for slot, path in self._paths.items():
            filled[slot] += path[-1] + 1 - len(path)
        return self._cache.bring_first(slots, filled, self.backbone.device)

    def _settle(self, slots: Sequence[int]) -> None:
        """Move the columns of replies that were found on their trees to where they begin."""
        moved: list[tuple[int, int, int]] = []
        for slot, row in zip(slots, self._cache.rows_of(slots), strict=True):
            path = self._paths.pop(slot, ())
            begin = self._lengths[slot] - len(path)
            moved += [(row, begin + node, begin + at) for at, node in enumerate(path) if at != node]
        if moved:
            rows, columns, to = self._indices(moved).T
            self._cache.copy(rows, columns, to)

    def _take_known(self, slots: Sequence[int], prompts: Sequence[Sequence[int]]) -> list[int]:
        """Fill slots that begin with what is known of their prompts, all but the last id; how many that are."""
        counts, places = list[int](), list[tuple[int, int, int]]()
        for slot, row, prompt in zip(slots, self._cache.rows_of(slots), prompts, strict=True):
            prefix = self._prefix_in[slot] or ()
            path = self._known.path(prefix, prompt[:-1]) if slot in self._fresh else []
            counts.append(len(path))
            places += [(row, column, node) for column, node in enumerate(path, len(prefix))]
            self._lengths[slot] += len(path)
        if places:
            self._cache.reach(1 + max(column for _, column, _ in places))
            self._known.copy(self._cache, places)
        return counts

    def _forward(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        trees: Sequence[TokenTree],
        nodes: int,
    ) -> Encoded:
        """One forward of prompts in the first rows, each followed by its tree in `nodes` columns; lengths are left."""
        width = max(map(len, prompts)) + nodes
        sizes = self._indices([len(prompt) for prompt in prompts])
        known = [[*prompt, *tree.ids] for prompt, tree in zip(prompts, trees, strict=True)]
        ids = self._indices([[*each, *[0] * (width - len(each))] for each in known])
        columns, cached = self._columns(slots, width)
        self._cache.aim(columns, cached)
        positions, mask = self._seen(columns, sizes, cached, trees, nodes)
        encoded = self.backbone.encode(ids, positions, mask, self._cache)
        at = torch.arange(len(slots), device=sizes.device)[:, None]
        return encoded.picked(at, sizes[:, None] + torch.arange(-1, nodes, device=sizes.device))

    def _seen(
        self, columns: Tensor, sizes: Tensor, cached: int, trees: Sequence[TokenTree], nodes: int
    ) -> tuple[Tensor, Mask]:
        """Positions (B, T) and mask of prompts that are followed by trees.

        A node stands in a column of its own, at the position that it would have on its path; it sees the conversation
        and its ancestors.

        Args:
            columns: (B, T) of the cache, one for each id.
            sizes: (B,) ids of each prompt.
            cached: W.
            trees: behind each prompt.
            nodes: M.
        """
        if not nodes:
            return columns, self.backbone.causal_mask(columns, cached)
        device = columns.device
        row = torch.arange(len(columns), device=device)[:, None]
        node = sizes[:, None] + torch.arange(
            nodes, device=device
        )  # (B, M) index of each node among the ids
        column = columns[row, node]
        begins = column[:, :1]
        positions, sees_to = columns.clone(), columns.clone()
        distinct = list({id(tree): tree for tree in trees}.values())  # mostly one
        which = self._indices(
            [distinct.index(tree) for tree in trees] if len(distinct) > 1 else [0]
        )
        depths = self._indices([[*tree.depths, *[0] * (nodes - len(tree))] for tree in distinct])
        positions[row, node] = begins + depths[which]
        sees_to[row, node] = begins - 1
        every = torch.arange(cached, device=device).expand(len(columns), -1)
        visible = every[:, None, :] <= sees_to[:, :, None]
        ancestors = torch.from_numpy(np.stack([tree.visible(nodes) for tree in distinct])).to(
            device
        )
        visible[row[:, :, None], node[:, :, None], column[:, None, :]] = ancestors[which]
        where = every.clone()
        where[row, column] = positions[row, node]
        return positions, self.backbone.mask(visible, positions, where)


def _of_similar_length(indices: Sequence[int], prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Indices in groups, ascending; a group ends where padding it would cost more than a forward."""
    groups: list[list[int]] = []
    order = sorted(indices, key=lambda index: -len(prompts[index]))
    for done, index in enumerate(order):
        if (
            not groups
            or (len(prompts[groups[-1][0]]) - len(prompts[index])) * (len(order) - done)
            > FORWARD_COST
        ):
            groups.append([])
        groups[-1].append(index)
    return [sorted(group) for group in groups]


class PlainSlots:
    """The same for a model that shares nothing: conversations are kept as ids, computed whole for every reply."""

    def __init__(self, backbone: Backbone, count: int) -> None:
        self.backbone = backbone
        self._ids: list[list[int]] = [[] for _ in range(count)]

    def forget(self) -> None:
        """Nothing is kept that older weights computed."""

    def restart(self, slot: int, prefix: tuple[int, ...]) -> None:
        self._ids[slot] = list(prefix)

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]
    ) -> Encoded:
        for slot, prompt in zip(slots, prompts, strict=True):
            self._ids[slot] += prompt
        return self.backbone.encode_apart([self._ids[slot] for slot in slots], trees)

    def keep(
        self, slots: Sequence[int], trees: Sequence[TokenTree], paths: Sequence[Sequence[int]]
    ) -> None:
        for slot, tree, path in zip(slots, trees, paths, strict=True):
            self._ids[slot] += [tree.ids[node] for node in path]
