"""The first layers of a Llama-like model, where no step changes them, and what they said of tokens: remembered.

An adapter in the top layers alone leaves the layers below it as they are. What these make of a token depends on it and
on what stands before it, so it is computed once for as long as it is remembered: in rollout, update, reference,
evaluation and policy map, in every epoch, and whatever the policy has become in between.

Notation: N tokens of a flat tree, Z of them on the paths to those that are new, D hidden size, L layers.
"""

from threading import Lock
from typing import Any

import torch
from torch import Tensor

from llamagym_tui.engine.model.lean import states_before
from llamagym_tui.engine.tokens.flat_tree import FlatTree, paths_to

REMEMBERED = 512 * 2**20
"""Bytes of hidden states held at most; once they are full, all are let go."""
LOCK = Lock()
"""Threads compute parts of a batch side by side, and remember what they find one after the other."""


def count_fixed(decoder: Any) -> int:
    """How many of the first layers have no weight that is trained; 0 if the embeddings are, or no layer is."""
    for count, part in enumerate([decoder.embed_tokens, *decoder.layers]):
        if any(weight.requires_grad for weight in part.parameters()):
            return max(0, count - 1)
    return 0


class FixedLayers:
    """The first `count` layers of a model, and the hidden states that they gave."""

    def __init__(self, count: int, most: int = REMEMBERED) -> None:
        """A memory of so many bytes at most, of so many layers."""
        self.count = count
        self._most = most
        self._places: dict[tuple[int, int], int] = {}
        """Where the states of a token are kept, by the place of the token before it (-1: none), and its id."""
        self._states = torch.empty(0)
        """(N, D) of N tokens."""

    @torch.no_grad()
    def states(self, decoder: Any, flat: FlatTree) -> Tensor:
        """(N, D) hidden states of a tree's tokens after these layers; only those that are new are computed."""
        with LOCK:
            places = self._found(flat)
            is_new = places < 0
            known = self._states[places.clamp(min=0)] if not is_new.all() else None
        if not is_new.any():
            assert known is not None, "all are known"
            return known
        paths = paths_to(flat, is_new.numpy())
        new = states_before(decoder, self.count, paths)[paths.wanted]
        hidden = new.new_empty(len(flat.ids), new.shape[-1]) if known is None else known
        hidden[is_new] = new
        with LOCK:
            self._remember(flat, hidden)
        return hidden

    def _found(self, flat: FlatTree) -> Tensor:
        """(N,) where each token's states are kept; -1: nowhere."""
        found: list[int] = []
        get = self._places.get
        for token, parent in zip(flat.ids.tolist(), flat.parents.tolist(), strict=True):
            before = -1 if parent < 0 else found[parent]
            # What goes on from a token that is not known is not known either.
            is_lost = parent >= 0 and before < 0
            found.append(-1 if is_lost else get((before, token), -1))
        return torch.tensor(found)

    def _remember(self, flat: FlatTree, hidden: Tensor) -> None:
        """Keep the states of a tree's tokens that are not kept yet, if there is room."""
        room = self._most // (hidden.shape[-1] * hidden.element_size())
        new = int((self._found(flat) < 0).sum())
        if len(self._places) + new > room:
            self._places.clear()
            new = len(flat.ids)
        if new > room:
            return
        if not len(self._states):
            # Outside of inference mode, in which a rollout may be, or an update could not write to it.
            with torch.inference_mode(False):
                self._states = torch.empty(room, hidden.shape[-1], dtype=hidden.dtype)
        found: list[int] = []
        added: list[int] = []
        pairs = zip(flat.ids.tolist(), flat.parents.tolist(), strict=True)
        for at, (token, parent) in enumerate(pairs):
            key = (-1 if parent < 0 else found[parent], token)
            if key not in self._places:
                self._places[key] = len(self._places)
                added.append(at)
            found.append(self._places[key])
        self._states[torch.tensor(found)[added]] = hidden[added]
