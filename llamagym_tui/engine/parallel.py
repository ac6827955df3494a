"""Parts of a batch side by side: one thread of this process for each part.

Torch lets other threads run while it computes, so the parts of a small model's batch are computed at the same time,
each on one core. How many parts there are is measured elsewhere (`llamagym_tui.engine.threads`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def on_threads(function: Callable[[Any], T], parts: Sequence[Any]) -> list[T]:
    """What a function returns for each part; all have ended when this returns or raises.

    The caller's own thread computes the first part, so a single part needs no other thread.
    """
    others = [_threads(len(parts) - 1).submit(function, part) for part in parts[1:]]
    try:
        first = function(parts[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    """A pool of threads that stays: a new thread would have new memory from the system each time."""
    return ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
