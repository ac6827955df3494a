"""Slots: conversations whose keys and values are kept, each continued with new ids only.

The k-th turn costs its own tokens. A system prompt is computed once per policy version and copied into slots, and so
is what a new conversation has in common with others of the version; those whose prompts differ much in length are
computed in forwards of their own. Behind each prompt a tree of possible replies may be computed in the same forward;
the path of the actual reply is kept. Notation: B rows, T new ids, M nodes of the tree, W columns of the cache.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from llamagym_tui.engine.model.caches import RaggedCache
from llamagym_tui.engine.model.forward import Backbone, Encoded, Mask
from llamagym_tui.engine.policy.known_tokens import KnownTokens
from llamagym_tui.engine.tokens.token_tree import TokenTree, padded

FORWARD_COST = 256
"""Tokens of padding that a forward of its own is worth: about what its overhead costs a small model."""


class Slots:
    def __init__(self, backbone: Backbone, count: int) -> None:
        self.backbone = backbone
        self.count = count
        self._cache = RaggedCache(count, backbone.layers)
        self._lengths = [0] * count
        """The tokens of each conversation, its prefix included."""
        self._prefix_in: list[tuple[int, ...] | None] = [None] * count
        """The prefix that each slot's row begins with, also between two conversations."""
        self._fresh: set[int] = set()
        """Slots whose conversation has nothing behind its prefix yet."""
        self._recorded: dict[tuple[int, ...], Cache] = {}
        """Keys and values of prefixes, computed by the present weights."""
        self._known = KnownTokens()
        self._paths: dict[int, Sequence[int]] = {}
        """Nodes of replies on their trees, whose columns have not been moved to the end of the conversation yet."""

    def forget(self) -> None:
        """Drop the keys and values of prefixes and of what followed them, which older weights computed."""
        self._recorded.clear()
        self._known.clear()
        self._prefix_in = [None] * self.count

    def restart(self, slot: int, prefix: tuple[int, ...]) -> None:
        """Begin a conversation in a slot with a prefix, which is computed if no slot has had it."""
        self._lengths[slot] = len(prefix)
        self._paths.pop(slot, None)
        self._fresh.add(slot)
        if self._prefix_in[slot] == prefix:
            return  # nothing has been written over it
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
        # What is left of each prompt to compute, behind what other conversations have computed already.
        counts = self._take_known(slots, prompts)
        rests = [prompt[known:] for prompt, known in zip(prompts, counts, strict=True)]
        nodes = max(map(len, trees))  # M
        most = max(map(len, rests)) + nodes
        index_of = {slot: index for index, slot in enumerate(slots)}
        parts: list[Encoded] = []
        order: list[int] = []
        for group in _of_similar_length(range(len(slots)), rests):
            # A forward reads the first rows of the cache, in their order there.
            among = self._bring_first([slots[index] for index in group], most)
            indices = [index_of[slot] for slot in among]
            own = [rests[index] for index in indices]
            behind = [trees[index] for index in indices]
            parts.append(self._forward(among, own, behind, nodes))
            # What a conversation begins with may be the beginning of others, too.
            read = [
                (row, self._prefix_in[slots[index]] or (), prompts[index], trees[index])
                for row, index in enumerate(indices)
                if slots[index] in self._fresh
            ]
            self._known.add(self._cache, read)
            order += indices
        self.grow(slots, list(map(len, rests)))
        self._fresh.difference_update(slots)
        return Encoded.joined(parts, self._indices(order).argsort())

    def keep(
        self, slots: Sequence[int], trees: Sequence[TokenTree], paths: Sequence[Sequence[int]]
    ) -> None:
        """Let each slot go on after the path that its reply took on the tree.

        The columns of the path are mostly where they have to be already; those that are not are moved before they are
        needed (`_settle`).
        """
        for slot, path in zip(slots, paths, strict=True):
            if path:
                self._paths[slot] = path
                self._lengths[slot] += len(path)

    def append(self, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
        """Append one id to each slot; logits (B, V) of what follows."""
        self._settle(slots)
        columns, width = self._columns(self._bring_first(slots, 0), 1)
        at = self._indices(self._cache.rows_of(slots))  # (B,) row of each slot, in their order
        in_rows = at.argsort()  # (B,) the other way round: which slot is in each row
        # Where all these conversations begin with one prefix, its keys are read once for all.
        prefixes = {self._prefix_in[slot] for slot in slots}
        shared = None
        if len(prefixes) == 1:
            shared = self._recorded.get(prefixes.pop() or ())
        new = self._indices(ids)[in_rows]
        encoded = self.backbone.encode_next(new, columns, width, self._cache, shared)
        self.grow(slots, [1] * len(slots))
        return encoded.logits_at(at, torch.zeros_like(at))

    def grow(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """Keep so many of the ids that were computed behind slots."""
        for slot, count in zip(slots, counts, strict=True):
            self._lengths[slot] += count

    def _indices(self, values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.backbone.device)

    def _columns(self, slots: Sequence[int], width: int) -> tuple[Tensor, int]:
        """(B, T) columns of new ids behind slots, and how many columns there are with them."""
        lengths = [self._lengths[slot] for slot in slots]
        new = torch.arange(width, device=self.backbone.device)
        return self._indices(lengths)[:, None] + new, max(lengths) + width

    def _bring_first(self, slots: Sequence[int], more: int) -> list[int]:
        """Let B slots have the first B rows, with room for `more` columns; the slots, in the order of their rows."""
        filled = [length + more for length in self._lengths]
        # A path that has not been moved reaches to the column of its last node.
        for slot, path in self._paths.items():
            filled[slot] += path[-1] + 1 - len(path)
        return self._cache.bring_first(slots, filled, self.backbone.device)

    def _settle(self, slots: Sequence[int]) -> None:
        """Move the columns of replies that were found on their trees to where the conversations go on.

        A tree's node k is in column begin + k, where the prompt ends at begin. Of the path 0, 2, 5, for example, node 2
        moves to column begin + 1, and node 5 to begin + 2. Keys know their position already, so they are only copied.
        """
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
        counts: list[int] = []
        places: list[tuple[int, int, int]] = []
        for slot, row, prompt in zip(slots, self._cache.rows_of(slots), prompts, strict=True):
            prefix = self._prefix_in[slot] or ()
            # All but the last id: what follows it is read from its hidden state, which is not kept with the keys.
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
        width = max(map(len, prompts)) + nodes  # T
        sizes = self._indices([len(prompt) for prompt in prompts])  # (B,)
        known = [[*prompt, *tree.ids] for prompt, tree in zip(prompts, trees, strict=True)]
        ids = self._indices([padded(each, width, 0) for each in known])  # (B, T)
        columns, cached = self._columns(slots, width)  # (B, T) and W
        self._cache.aim(columns, cached)
        positions, mask = self._seen(columns, sizes, cached, trees, nodes)
        encoded = self.backbone.encode(ids, positions, mask, self._cache)
        # (B, 1 + M) of the T: from the last id of each prompt to the last node of its tree.
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
        row = torch.arange(len(columns), device=device)[:, None]  # (B, 1)
        node = sizes[:, None] + torch.arange(
            nodes, device=device
        )  # (B, M) of each node among the T
        column = columns[row, node]  # (B, M) of each node in the cache
        begins = column[
            :, :1
        ]  # (B, 1) where the tree begins, which is how long the conversation is

        # Depths and ancestors by tree; rows mostly have one tree, which is made a tensor once.
        distinct = list({id(tree): tree for tree in trees}.values())
        which = [distinct.index(tree) for tree in trees] if len(distinct) > 1 else [0]
        of_row = self._indices(which)  # (B,), or (1,) for all rows
        depths = self._indices([padded(tree.depths, nodes, 0) for tree in distinct])
        sees = np.stack([tree.visible(nodes) for tree in distinct])
        ancestors = torch.from_numpy(sees).to(device)

        # A token of a prompt stands at the position of its column and sees all columns up to it, as in the textbook. A
        # node stands at the position of its depth, and of all columns before the tree and its ancestors sees each.
        positions = columns.clone()
        positions[row, node] = begins + depths[of_row]
        sees_to = columns.clone()
        sees_to[row, node] = begins - 1
        every = torch.arange(cached, device=device).expand(len(columns), -1)  # (B, W)
        visible = every[:, None, :] <= sees_to[:, :, None]  # (B, T, W)
        visible[row[:, :, None], node[:, :, None], column[:, None, :]] = ancestors[of_row]

        # Positions of the columns, by which a sliding window is measured.
        where = every.clone()
        where[row, column] = positions[row, node]
        return positions, self.backbone.mask(visible, positions, where)


def _of_similar_length(indices: Sequence[int], prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Indices in groups, ascending; a group ends where padding it would cost more than a forward."""
    groups: list[list[int]] = []
    order = sorted(indices, key=lambda index: -len(prompts[index]))  # the longest first
    longest = 0  # of the present group
    for done, index in enumerate(order):
        length = len(prompts[index])
        # What padding this one and all shorter ones to the present group would cost.
        padding = (longest - length) * (len(order) - done)
        if not groups or padding > FORWARD_COST:
            groups.append([])
            longest = length
        groups[-1].append(index)
    return [sorted(group) for group in groups]


class PlainSlots:
    """Slots for a model that shares nothing: conversations are kept as ids, computed whole for every reply."""

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
