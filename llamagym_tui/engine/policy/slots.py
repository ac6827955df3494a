"""Slots: conversations whose keys and values are kept, each continued with new ids only.

The k-th turn costs its own tokens. A system prompt is computed once per policy version and copied into slots; slots
that begin with the same prompt are computed once, and those whose prompts differ much in length in forwards of their
own. Behind each prompt a tree of possible replies may be computed in the same forward; the path of the actual reply is
kept. Notation: B rows, M nodes of the tree, W columns of the cache.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from llamagym_tui.engine.model.caches import RaggedCache
from llamagym_tui.engine.model.forward import Backbone, Encoded, Mask
from llamagym_tui.engine.tokens.token_tree import TokenTree

FORWARD_COST = 256
"""Tokens of padding that a forward of its own is worth: about what its overhead costs a small model."""


class Ahead(NamedTuple):
    encoded: Encoded
    """B rows of 1 + M columns: the prompt's last token, then the nodes of its tree."""
    trees: Sequence[TokenTree]
    """Behind each prompt; M is the size of the largest."""
    begins: Tensor
    """(B,) column of the cache at which each reply begins."""


class Slots:
    def __init__(self, backbone: Backbone, count: int) -> None:
        self.backbone, self.count = backbone, count
        self._cache = RaggedCache(count, backbone.layers)
        self._lengths = torch.zeros(count, dtype=torch.long, device=backbone.device)
        self._prefix_in: list[tuple[int, ...] | None] = [None] * count
        self._fresh: set[int] = set()
        self._recorded: dict[tuple[int, ...], Cache] = {}

    def forget(self) -> None:
        """Drop the keys and values of prefixes, which older weights computed."""
        self._recorded.clear()
        self._prefix_in = [None] * self.count

    @torch.inference_mode()
    def restart(self, slot: int, prefix: tuple[int, ...]) -> None:
        self._lengths[slot] = len(prefix)
        self._fresh.add(slot)
        if self._prefix_in[slot] == prefix:
            return
        self._prefix_in[slot] = prefix
        if not prefix:
            return
        if prefix not in self._recorded:
            self._recorded[prefix] = self.backbone.record(prefix)
        self._cache.fill(slot, self._recorded[prefix], len(prefix))

    def prefill(self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]) -> Ahead:
        """Append prompts to slots, and compute a tree behind each; the slots end with their prompts.

        Args:
            slots: B distinct slots, ascending.
            prompts: ids that each slot has not seen yet, at least one.
            trees: of possible replies; may be empty.
        """
        # Episodes of one environment often begin with the same observation: such prompts are computed once.
        computed, same_as = self._distinct(slots, prompts, trees)
        nodes, index_of = max(map(len, trees)), {slot: index for index, slot in enumerate(slots)}
        filled = self._lengths + max(map(len, prompts)) + nodes
        parts: list[Encoded] = []
        order: list[int] = []
        for group in _of_similar_length(computed, prompts):
            among = self._cache.bring_first([slots[index] for index in group], filled)
            indices = [index_of[slot] for slot in among]
            own, behind = [prompts[index] for index in indices], [trees[index] for index in indices]
            parts.append(self._forward(among, own, behind, nodes))
            order += indices
        place = {index: row for row, index in enumerate(order)}
        encoded = Encoded.joined(parts, self._indices([place[first] for first in same_as]))
        self._copy(slots, prompts, same_as, nodes)
        rows = self._indices(slots)
        begins = self._lengths[rows] + self._indices([len(prompt) for prompt in prompts])
        self._lengths[rows] = begins
        self._fresh.difference_update(slots)
        return Ahead(encoded, trees, begins)

    def keep(self, slots: Sequence[int], ahead: Ahead, paths: Sequence[Sequence[int]]) -> None:
        """Let each slot go on after the path that its reply took on the tree: its columns move to the reply's begin."""
        longest = max(map(len, paths))
        moved = [[*path, *range(len(path), longest)] for path in paths]
        if any(path != list(range(longest)) for path in moved):
            begins = ahead.begins[:, None]
            to = begins + torch.arange(longest, device=begins.device)
            self._cache.copy(slots, begins + self._indices(moved), slots, to)
        self._lengths[self._indices(slots)] = ahead.begins + self._indices([len(path) for path in paths])

    def append(self, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
        """Append one id to each slot; logits (B, V) of what follows."""
        own, among = dict(zip(slots, ids, strict=True)), self._cache.bring_first(slots, self._lengths)
        at = self._indices(among)
        columns = self._lengths[at][:, None]
        mask = self.backbone.causal_mask(columns, self._cache.aim(columns))
        encoded = self.backbone.encode(self._indices([[own[slot]] for slot in among]), columns, mask, self._cache)
        self._lengths[at] += 1
        at = self._indices(self._cache.rows_of(slots))  # back in the order of `slots`
        return encoded.logits_at(at, torch.zeros_like(at))

    def _indices(self, values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._lengths.device)

    def _distinct(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]
    ) -> tuple[list[int], list[int]]:
        """Indices that must be computed, and of each index the one that it equals: new slots may begin alike."""
        first: dict[object, int] = {}
        same_as = []
        for index, (slot, prompt, tree) in enumerate(zip(slots, prompts, trees, strict=True)):
            key = (self._prefix_in[slot], tuple(prompt), id(tree)) if slot in self._fresh else slot
            same_as.append(first.setdefault(key, index))
        return sorted(set(same_as)), same_as

    def _copy(self, slots: Sequence[int], prompts: Sequence[Sequence[int]], same_as: list[int], nodes: int) -> None:
        pairs = [(index, first) for index, first in enumerate(same_as) if index != first]
        if not pairs:
            return
        to, among = ([slots[each] for each in which] for which in zip(*pairs, strict=True))
        width = max(len(prompts[index]) for index, _ in pairs) + nodes
        columns = self._lengths[self._indices(among)][:, None] + torch.arange(width, device=self._lengths.device)
        self._cache.reach(int(columns.max()) + 1)
        self._cache.copy(among, columns, to, columns)

    def _forward(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree], nodes: int
    ) -> Encoded:
        """One forward of prompts in the first rows, each followed by its tree in `nodes` columns; lengths are left."""
        width = max(map(len, prompts)) + nodes
        sizes = self._indices([len(prompt) for prompt in prompts])
        known = [[*prompt, *tree.ids] for prompt, tree in zip(prompts, trees, strict=True)]
        ids = self._indices([[*each, *[0] * (width - len(each))] for each in known])
        columns = self._lengths[self._indices(slots)][:, None] + torch.arange(width, device=sizes.device)
        cached = self._cache.aim(columns)
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
        node = sizes[:, None] + torch.arange(nodes, device=device)  # (B, M) index of each node among the ids
        column = columns[row, node]
        begins = column[:, :1]
        positions, sees_to = columns.clone(), columns.clone()
        distinct = list({id(tree): tree for tree in trees}.values())  # mostly one
        which = self._indices([distinct.index(tree) for tree in trees] if len(distinct) > 1 else [0])
        depths = self._indices([[*tree.depths, *[0] * (nodes - len(tree))] for tree in distinct])
        positions[row, node] = begins + depths[which]
        sees_to[row, node] = begins - 1
        every = torch.arange(cached, device=device).expand(len(columns), -1)
        visible = every[:, None, :] <= sees_to[:, :, None]
        ancestors = torch.from_numpy(np.stack([tree.visible(nodes) for tree in distinct])).to(device)
        visible[row[:, :, None], node[:, :, None], column[:, None, :]] = ancestors[which]
        where = every.clone()
        where[row, column] = positions[row, node]
        return positions, self.backbone.mask(visible, positions, where)


def _of_similar_length(indices: Sequence[int], prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Indices in groups, ascending; a group ends where padding it would cost more than a forward."""
    groups: list[list[int]] = []
    order = sorted(indices, key=lambda index: -len(prompts[index]))
    for done, index in enumerate(order):
        if not groups or (len(prompts[groups[-1][0]]) - len(prompts[index])) * (len(order) - done) > FORWARD_COST:
            groups.append([])
        groups[-1].append(index)
    return [sorted(group) for group in groups]
