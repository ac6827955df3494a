"""Key-value caches go when nobody needs them, not when garbage is collected."""

from __future__ import annotations

import gc
import weakref

import torch

from llamagym_tui.engine.model.caches import RaggedCache


def test_a_cache_that_is_dropped_frees_its_memory_at_once() -> None:
    gc.disable()
    try:
        cache = RaggedCache(2, 1)
        cache.aim(torch.tensor([[0], [0]]), 1)
        keys, _ = cache.update(torch.ones(2, 1, 1, 4), torch.ones(2, 1, 1, 4), 0)
        assert keys.shape == (2, 1, 1, 4)
        buffer = weakref.ref(cache.layers[0].keys)
        del cache, keys
        assert buffer() is None
    finally:
        gc.enable()


def test_conversations_that_go_on_are_read_where_they_lie_and_those_that_wait_keep_what_they_hold():
    cache = RaggedCache(5, 1)
    step(cache, [0, 1, 2, 3, 4], at=0)
    step(cache, [4, 1], at=1)
    step(cache, [3], at=1)
    step(cache, [0, 2, 3], at=2)
    for conversation, columns in enumerate([[0, 2], [0, 1], [0, 2], [0, 1, 2], [0, 1]]):
        (row,) = cache.rows_of([conversation])
        assert cache.layers[0].values[row, 0, columns, 0].tolist() == [
            conversation + column / 8 for column in columns
        ]


def step(cache: RaggedCache, conversations: list[int], at: int) -> None:
    """Write conversation + at / 8 to a column of each, as a forward does."""
    among = cache.bring_first(conversations, [3] * 5, torch.device("cpu"))
    assert sorted(among) == sorted(conversations)
    cache.aim(torch.full((len(among), 1), at), at + 1)
    written = torch.tensor(among).view(-1, 1, 1, 1) + at / 8
    read = cache.update(written, written, 0)
    for buffer, found in zip((cache.layers[0].keys, cache.layers[0].values), read, strict=True):
        assert found.data_ptr() == buffer.data_ptr()
        assert found.shape == (len(among), 1, at + 1, 1)
        assert torch.equal(found[:, 0, at, 0], written.flatten())
