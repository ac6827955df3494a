"""Key-value caches: one shared prefix expanded over rows, and ragged rows that grow in place.

`prefix_cache` serves the update: gradients flow through the prefix to every row. `RaggedCache` serves the rollout:
column j of a row holds position j, so rows of any length live in one buffer with no padding between turns, and a
row is restarted by shortening it. A forward reads the first rows as they lie: conversations change places, and nothing
is gathered. Masks are the caller's (`llamagym_tui.engine.model.forward`).

Notation: B rows of a forward, T new tokens in each, W columns, P tokens of a prefix, K heads of keys and values, E
numbers of a head.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


def recording_cache() -> Cache:
    """A cache that keeps all keys and values of a forward, whatever the model's window."""
    return Cache(layer_class_to_replicate=DynamicLayer)


def prefix_cache(recorded: Cache, rows: int) -> Cache:
    """A recorded prefix that stands before what one forward adds to each of its rows."""
    cache = Cache(layers=[DynamicLayer() for _ in recorded.layers])
    for layer, source in zip(cache.layers, recorded.layers, strict=True):
        # (1, K, P, E) as (rows, K, P, E) without a copy; the gradients of all rows add up in the one prefix.
        layer.keys = source.keys.expand(rows, -1, -1, -1)
        layer.values = source.values.expand(rows, -1, -1, -1)
        layer.is_initialized = True
    return cache


class _RaggedLayer(DynamicLayer):
    """Buffers (rows, K, capacity, E); the owner holds which columns a forward writes."""

    def __init__(self, owner: RaggedCache) -> None:
        super().__init__()
        # A cycle of megabytes would wait for a full collection of garbage, one more with every batch.
        self.owner = weakref.proxy(owner)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        _, heads, _, dim = key_states.shape
        shape = (self.owner.rows, heads, self.owner.capacity, dim)
        self.keys = key_states.new_zeros(shape)
        self.values = value_states.new_zeros((*shape[:3], value_states.shape[-1]))
        self.is_initialized = True

    def reserve(self, capacity: int) -> None:
        """Let the buffers have so many columns, new ones behind those that there are."""
        if self.is_initialized:
            assert self.keys is not None and self.values is not None
            more = capacity - self.keys.shape[-2]
            self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, more))
            self.values = torch.nn.functional.pad(self.values, (0, 0, 0, more))

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write (B, K, T, E) new keys and values where the owner aims; (B, K, W, E) of all that the rows have then.

        A model may pass more than that to its cache, none of which is needed here.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        rows, columns, width = self.owner.target
        # Each row writes to columns of its own, where its conversation ends: indices (B, 1) and (B, T), so the
        # dimension of the heads comes last, (B, T, K, E).
        self.keys[rows, :, columns] = key_states.transpose(1, 2)
        self.values[rows, :, columns] = value_states.transpose(1, 2)
        # Views, not copies. In shorter rows the last columns hold what the mask hides.
        return self.keys[: len(rows), :, :width], self.values[: len(rows), :, :width]


class RaggedCache(Cache):
    """Conversations of different lengths, each in a row of its own and continued where it ends."""

    def __init__(self, rows: int, layers: int) -> None:
        self.rows = rows
        self.capacity = 0
        """Columns that the buffers have."""
        self._in_row = list(range(rows))
        """The conversation that is in each row."""
        self._row_of = list(range(rows))
        """The row of each conversation."""
        self.target: tuple[Tensor, Tensor, int]
        """Rows (B, 1) and columns (B, T) that the next forward writes, and how many columns W it reads; see `aim`."""
        super().__init__(layers=[_RaggedLayer(self) for _ in range(layers)])

    def rows_of(self, conversations: Sequence[int]) -> list[int]:
        return [self._row_of[each] for each in conversations]

    def bring_first(
        self, conversations: Sequence[int], filled: Sequence[int], device: torch.device
    ) -> list[int]:
        """Let B conversations have the first B rows; they, in the order of their rows.

        `filled` has for each conversation there is, not of these alone, how many columns may be in use.
        """
        rows = self.rows_of(conversations)
        beyond = [row for row in rows if row >= len(rows)]
        if beyond:
            # Those beyond the first B rows change places with as many others that are in the first B.
            free = sorted(set(range(len(rows))).difference(rows))
            sources = beyond + free
            targets = free + beyond
            moved = [self._in_row[row] for row in sources]
            width = max(filled[each] for each in moved)
            there, here = torch.tensor([targets, sources], device=device)
            for buffer in self.buffers:
                buffer[there, :, :width] = buffer[here, :, :width]
            for row, each in zip(targets, moved, strict=True):
                self._in_row[row] = each
                self._row_of[each] = row
        return self._in_row[: len(rows)]

    def aim(self, columns: Tensor, width: int) -> None:
        """Set where the next forward writes, and how many columns it reads.

        Args:
            columns: (B, T) position of each new token of the first B rows.
            width: over all of them.
        """
        self.reach(width)
        rows = torch.arange(len(columns), device=columns.device)[:, None]
        self.target = (rows, columns, width)

    def reach(self, width: int) -> None:
        """Let every row have room for so many columns; room at least doubles, so that it seldom has to grow."""
        if width > self.capacity:
            self.capacity = max(width, 2 * self.capacity, 64)
            for layer in self.layers:
                layer.reserve(self.capacity)

    @property
    def buffers(self) -> list[Tensor]:
        """Keys and values (rows, K, capacity, E) of every layer that has some."""
        return [
            each for layer in self.layers for each in (layer.keys, layer.values) if each is not None
        ]

    def copy(self, rows: Tensor, columns: Tensor, to_columns: Tensor) -> None:
        """Copy (N,) columns of rows to as many others of the same rows."""
        for buffer in self.buffers:
            buffer[rows, :, to_columns] = buffer[rows, :, columns]

    def fill(self, conversation: int, recorded: Cache, length: int) -> None:
        """Write a recorded prefix of `length` columns to the start of a conversation."""
        self.reach(length)
        row = self._row_of[conversation]
        for layer, source in zip(self.layers, recorded.layers, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(source.keys, source.values)
            layer.keys[row, :, :length] = source.keys[0]
            layer.values[row, :, :length] = source.values[0]
