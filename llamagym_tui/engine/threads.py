"""Choosing torch's intra-op threads by measurement: on a busy machine, as many as cores can be far slower than one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch

from llamagym_tui.engine.policy import Policy

TRIAL_ROWS, TRIAL_LENGTH = 32, 24
"""A small minibatch: updates are where the time goes."""


def calibrate_threads(step: Callable[[], object], *, repeats: int = 2, margin: float = 0.1) -> int:
    """Set, and return, the number of threads on which `step` is fastest; one thread unless more are clearly faster.

    A count that is much slower at once is not measured again, and no higher one is tried.

    Args:
        step: a piece of work like the run's own, some milliseconds long.
        repeats: measurements of each count after a first; the fastest counts.
        margin: by how much of its time a higher count must win.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(1)
    _timed(step)
    best, best_s = 1, min(_timed(step) for _ in range(repeats))
    count = 2
    while count <= cores:
        torch.set_num_threads(count)
        first_s = _timed(step)
        if first_s > 2 * best_s:
            break
        elapsed_s = min(first_s, *(_timed(step) for _ in range(repeats)))
        if elapsed_s > best_s * (1 - margin):
            break
        best, best_s = count, elapsed_s
        count *= 2
    torch.set_num_threads(best)
    return best


def update_like_step(policy: Policy) -> Callable[[], object]:
    """Work like a small minibatch: forward and backward, with nothing changed by it."""
    ids = list(policy.chat.end_ids[:1]) * TRIAL_LENGTH
    rows = [ids] * TRIAL_ROWS
    at = torch.arange(TRIAL_ROWS, device=policy.model.backbone.device)
    weights = [p for p in policy.model.pretrained_model.parameters() if p.requires_grad]

    def step() -> object:
        logits = policy.model.backbone.encode_rows(ids, rows).logits_at(at, at * 0)
        return torch.autograd.grad(logits.sum(), weights, allow_unused=True)

    return step


def _timed(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
