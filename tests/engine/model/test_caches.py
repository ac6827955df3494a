"""Key-value caches go when nobody needs them, not when garbage is collected."""

from __future__ import annotations

import gc
import weakref

import torch

from llamagym_tui.engine.model.caches import RaggedCache


def test_a_cache_that_is_dropped_frees_its_memory_at_once() -> None:
    gc.disable()
    try:
        cache = RaggedCache(2, 1, torch.device("cpu"))
        cache.aim(torch.tensor([[0], [0]]))
        keys, _ = cache.update(torch.ones(2, 1, 1, 4), torch.ones(2, 1, 1, 4), 0)
        assert keys.shape == (2, 1, 1, 4)
        buffer = weakref.ref(cache.layers[0].keys)
        del cache, keys
        assert buffer() is None
    finally:
        gc.enable()
