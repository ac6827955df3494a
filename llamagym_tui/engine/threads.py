"""Choosing torch's intra-op threads by measurement: on a busy machine, as many as cores can be far slower than one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch


def calibrate_threads(step: Callable[[], object], *, repeats: int = 3, margin: float = 0.05) -> int:
    """Set, and return, the number of threads on which `step` is fastest; one thread unless more are clearly faster.

    Args:
        step: a piece of work like the run's own, some milliseconds long.
        repeats: measurements of each count; the fastest counts.
        margin: by how much of its time a higher count must win.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    best, best_s = 1, float("inf")
    count = 1
    while count <= cores:
        torch.set_num_threads(count)
        step()
        elapsed_s = min(_timed(step) for _ in range(repeats))
        if elapsed_s < best_s * (1 - margin):
            best, best_s = count, elapsed_s
        count *= 2
    torch.set_num_threads(best)
    return best


def _timed(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
