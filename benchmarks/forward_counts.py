"""Counting what forwards compute, from outside: tokens, padding and FLOPs, by the ids and masks of each forward.

A position is read if its logits or hidden state are asked for, or if a read position sees it. Padding is a run of zeros
at the end of a row that nothing reads. FLOPs of a forward:

    2 x weights of the decoder's matrices, embedding left out, for each of its B x T tokens
  + 4 x layers x heads x head size for each of its B x T x W pairs of token and column, masked pairs too
  + 2 x hidden size x vocabulary for each position whose logits are asked for

and three times as many where a backward follows (twice where the weights are frozen and an adapter is trained).
Notation: B rows, T new tokens, W cached and new columns.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.model.forward import Backbone, Encoded


class Tokens(NamedTuple):
    """How many tokens were computed, and how many of them for nothing."""

    computed: int
    padding: int


class Shape(NamedTuple):
    """What FLOPs depend on."""

    weights: int
    """In the decoder's matrices, embedding left out."""
    attention: int
    """Layers x heads x head size."""
    head: int
    """Hidden size x vocabulary."""

    @classmethod
    def of(cls, backbone: Backbone) -> Shape:
        """Of a loaded model."""
        config = backbone.lm.config.get_text_config()
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        table = backbone.decoder.get_input_embeddings().weight
        matrices = sum(p.numel() for p in backbone.decoder.parameters() if p.ndim == 2 and p is not table)
        width = config.num_hidden_layers * config.num_attention_heads * size
        return cls(matrices, width, config.hidden_size * backbone.vocabulary)


@dataclass
class Forward:
    """One forward, while it may still be read."""

    phase: str
    ids: Tensor
    """(B, T)."""
    mask: Tensor
    """(1 or B, 1, T, W) what is added to attention scores: 0 where a column is seen."""
    trains: bool
    """Whether a backward follows."""
    reads: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Rows and columns that were asked for; none: all, as where keys and values are kept."""

    def tokens(self) -> Tokens:
        """What was computed."""
        visible = (self.mask == 0)[:, 0].expand(len(self.ids), -1, -1)
        return counted(self.ids, visible, self.reads)

    def flops(self, shape: Shape) -> int:
        """Of the forward alone, without logits."""
        tokens = self.ids.numel()
        return 2 * shape.weights * tokens + 4 * shape.attention * tokens * self.mask.shape[-1]


@dataclass
class ForwardCounts:
    """Sums over forwards, by phase."""

    shape: Shape
    times_training: int = 3
    computed: Counter[str] = field(default_factory=Counter)
    padding: Counter[str] = field(default_factory=Counter)
    flops: Counter[str] = field(default_factory=Counter)
    widths: Counter[int] = field(default_factory=Counter)
    """Tokens of forwards that train, by tokens of the forward."""
    forwards: list[Forward] = field(default_factory=list)

    def add_logits(self, phase: str, positions: int) -> None:
        """Count logits that were computed, and their backward where one follows."""
        times = self.times_training if torch.is_grad_enabled() else 1
        self.flops[phase] += 2 * self.shape.head * positions * times

    def add_up(self) -> None:
        """Count the forwards so far, and forget them."""
        for forward in self.forwards:
            tokens = forward.tokens()
            self.computed[forward.phase] += tokens.computed
            self.padding[forward.phase] += tokens.padding
            self.flops[forward.phase] += forward.flops(self.shape) * (self.times_training if forward.trains else 1)
            if forward.trains:
                self.widths[tokens.computed] += tokens.computed
        self.forwards.clear()

    def typical_width(self) -> int:
        """Tokens of a training forward: half of all tokens are in larger ones."""
        total, so_far = sum(self.widths.values()), 0
        for width in sorted(self.widths):
            so_far += self.widths[width]
            if 2 * so_far >= total:
                return width
        return 1


@contextmanager
def counting(counts: ForwardCounts, phase: Callable[[], str]) -> Iterator[None]:
    """Watch every forward, for a while.

    Args:
        counts: takes them.
        phase: called for the name of what is being done.
    """
    watched: weakref.WeakKeyDictionary[Encoded, Forward] = weakref.WeakKeyDictionary()
    encode, kept = Backbone.encode, {name: getattr(Encoded, name) for name in ("picked", "hidden_at", "logits_at")}

    def watched_encode(self: Backbone, ids: Tensor, positions: Tensor, mask: Any, cache: Any = None) -> Encoded:
        encoded = encode(self, ids, positions, mask, cache)
        additive = next(iter(mask.values())) if isinstance(mask, dict) else mask
        forward = Forward(phase(), ids, additive, torch.is_grad_enabled())
        counts.forwards.append(forward)
        watched[encoded] = forward
        if not self.is_split:
            counts.add_logits(forward.phase, ids.numel())
        return encoded

    def watched_read(name: str) -> Callable[[Encoded, Tensor, Tensor], Any]:
        def read(self: Encoded, rows: Tensor, columns: Tensor) -> Any:
            if self in watched:
                watched[self].reads.append((rows, columns))
            if name == "logits_at" and self._logits is None:
                counts.add_logits(phase(), len(rows))
            return kept[name](self, rows, columns)

        return read

    Backbone.encode = watched_encode
    for name in kept:
        setattr(Encoded, name, watched_read(name))
    try:
        yield
    finally:
        Backbone.encode = encode
        for name, method in kept.items():
            setattr(Encoded, name, method)


def counted(ids: Tensor, visible: Tensor, reads: list[tuple[Tensor, Tensor]]) -> Tokens:
    """Tokens of a forward, and those among them that are padding.

    Args:
        ids: (B, T).
        visible: (B, T, W) bool: the columns that each token sees; its own is the last of them.
        reads: rows and columns, of T, that were asked for.
    """
    if not reads:
        return Tokens(ids.numel(), 0)
    asked = torch.zeros_like(ids, dtype=torch.bool)
    for rows, columns in reads:
        asked[rows, columns] = True
    width = visible.shape[-1]
    own = width - 1 - visible.flip(-1).int().argmax(-1)
    seen = (visible & asked[:, :, None]).any(1)
    read = seen.gather(1, own) | asked
    is_end = (ids.flip(-1) != 0).cumsum(-1).flip(-1) == 0
    return Tokens(ids.numel(), int((is_end & ~read).sum()))
