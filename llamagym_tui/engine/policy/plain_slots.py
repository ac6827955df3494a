"""Slots of a model that shares nothing: each conversation is kept as ids, and computed whole for every reply."""

from collections.abc import Sequence

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.engine.tokens.token_tree import TokenTree


class PlainSlots:
    """The interface of `Slots`."""

    def __init__(self, backbone: Backbone, count: int) -> None:
        self.backbone = backbone
        self._ids: list[list[int]] = [[] for _ in range(count)]

    def forget(self) -> None:
        """Nothing is kept that older weights computed."""

    def restart(self, slot: int, prefix: tuple[int, ...]) -> None:
        self._ids[slot] = list(prefix)

    def prefill(self, slots: Sequence[int], prompts: Sequence[Sequence[int]], trees: Sequence[TokenTree]) -> Encoded:
        for slot, prompt in zip(slots, prompts, strict=True):
            self._ids[slot] += prompt
        return self.backbone.encode_apart([self._ids[slot] for slot in slots], trees)

    def keep(self, slots: Sequence[int], trees: Sequence[TokenTree], paths: Sequence[Sequence[int]]) -> None:
        for slot, tree, path in zip(slots, trees, paths, strict=True):
            self._ids[slot] += [tree.ids[node] for node in path]

    def append(self, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
        encoded = self.prefill(slots, [[token] for token in ids], [TokenTree()] * len(slots))
        rows = torch.arange(len(slots), device=self.backbone.device)
        return encoded.logits_at(rows, torch.zeros_like(rows))
