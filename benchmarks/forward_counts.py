"""Counting what forwards compute, from outside: tokens, padding and FLOPs, by the ids and masks of each forward.

A position is read if its logits or hidden state are asked for, or if a read position sees it. What is not read is
padding where it is a run of zeros at the end of a row, and else work on a reply that was not said. FLOPs of a forward:

    2 x weights of the decoder's matrices, embedding left out, for each of its B x T tokens
  + 4 x layers x heads x head size for each of its B x T x W pairs of token and column, masked pairs too
  + 2 x hidden size x vocabulary for each position whose logits are asked for

and three times as many where a backward follows (twice where the weights are frozen and an adapter is trained).
Notation: B rows, T new tokens, W cached and new columns.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.forward import Backbone, Encoded


class Tokens(NamedTuple):
    """How many tokens were computed, and for what."""

    computed: int
    padding: int
    unsaid: int
    """Neither padding nor read: what a reply might have been."""


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
    logits: int = 0
    """Positions whose logits were asked for."""

    def tokens(self) -> Tokens:
        """What was computed for what."""
        visible = (self.mask == 0)[:, 0].expand(len(self.ids), -1, -1)
        return counted(self.ids, visible, self.reads)

    def flops(self, shape: Shape, *, times_training: int = 3) -> int:
        """Of the forward, and of the backward if one follows."""
        pairs = self.ids.numel() * self.mask.shape[-1]
        once = 2 * shape.weights * self.ids.numel() + 4 * shape.attention * pairs + 2 * shape.head * self.logits
        return once * (times_training if self.trains else 1)


@dataclass
class ForwardCounts:
    """Sums over forwards, by phase."""

    shape: Shape
    times_training: int = 3
    computed: Counter[str] = field(default_factory=Counter)
    padding: Counter[str] = field(default_factory=Counter)
    unsaid: Counter[str] = field(default_factory=Counter)
    flops: Counter[str] = field(default_factory=Counter)
    widths: Counter[int] = field(default_factory=Counter)
    """Tokens of forwards that train, by tokens of the forward."""
    forwards: list[Forward] = field(default_factory=list)

    def add_up(self) -> None:
        """Count the forwards so far, and forget them."""
        for forward in self.forwards:
            tokens = forward.tokens()
            self.computed[forward.phase] += tokens.computed
            self.padding[forward.phase] += tokens.padding
            self.unsaid[forward.phase] += tokens.unsaid
            self.flops[forward.phase] += forward.flops(self.shape, times_training=self.times_training)
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
def counting(counts: ForwardCounts, phase: Any) -> Iterator[None]:
    """Watch every forward, for a while.

    Args:
        counts: takes them.
        phase: called for the name of what is being done.
    """
    watched: weakref.WeakKeyDictionary[Encoded, Forward] = weakref.WeakKeyDictionary()
    encode, logits_at, hidden_at = Backbone.encode, Encoded.logits_at, Encoded.hidden_at

    def watched_encode(self: Backbone, ids: Tensor, positions: Tensor, mask: Any, cache: Any = None) -> Encoded:
        encoded = encode(self, ids, positions, mask, cache)
        additive = next(iter(mask.values())) if isinstance(mask, dict) else mask
        logits = 0 if self.is_split else ids.numel()
        forward = Forward(phase(), ids, additive, torch.is_grad_enabled(), logits=logits)
        counts.forwards.append(forward)
        watched[encoded] = forward
        return encoded

    def watched_logits(self: Encoded, rows: Tensor, columns: Tensor) -> Tensor:
        if self in watched:
            watched[self].reads.append((rows, columns))
            watched[self].logits += len(rows) if self._logits is None else 0
        return logits_at(self, rows, columns)

    def watched_hidden(self: Encoded, rows: Tensor, columns: Tensor) -> Tensor:
        if self in watched:
            watched[self].reads.append((rows, columns))
        return hidden_at(self, rows, columns)

    Backbone.encode, Encoded.logits_at, Encoded.hidden_at = watched_encode, watched_logits, watched_hidden
    try:
        yield
    finally:
        Backbone.encode, Encoded.logits_at, Encoded.hidden_at = encode, logits_at, hidden_at


def counted(ids: Tensor, visible: Tensor, reads: list[tuple[Tensor, Tensor]]) -> Tokens:
    """Tokens of a forward by what they are for.

    Args:
        ids: (B, T).
        visible: (B, T, W) bool: the columns that each token sees; its own is the last of them.
        reads: rows and columns, of T, that were asked for.
    """
    if not reads:
        return Tokens(ids.numel(), 0, 0)
    asked = torch.zeros_like(ids, dtype=torch.bool)
    for rows, columns in reads:
        asked[rows, columns] = True
    width = visible.shape[-1]
    own = width - 1 - visible.flip(-1).int().argmax(-1)
    seen = (visible & asked[:, :, None]).any(1)
    read = seen.gather(1, own) | asked
    is_end = (ids.flip(-1) != 0).cumsum(-1).flip(-1) == 0
    padding = int((is_end & ~read).sum())
    return Tokens(ids.numel(), padding, int((~read).sum()) - padding)
