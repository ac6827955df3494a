"""Threads: what they compute side by side, and how many there are.

Products of a small model are too short to be divided: where the machine is busy, threads wait for each other in each.
A batch of it is divided among them; that costs each part's own prefix, and a gradient each. With a larger model
each product is.

The number is chosen by measurement: on a busy machine, as many as cores can be far slower than one. For a small model
the work of an update is measured, for a larger one, whose update takes too long, products of a wide layer, and a few
small ones first, which reveal a busy machine. More threads must win clearly, alternately with the best count so far.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial
from typing import Any, TypeVar

import torch

from llamagym_tui.engine.learning.batch import Row, forwards, parts_of
from llamagym_tui.engine.model.shape import ForwardLimits
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Segment, Turn

T = TypeVar("T")
SMALL_MODEL = 20_000_000
"""Weights up to which batches are divided, and not products."""
TRIAL_ROWS, TRIAL_LENGTH, TRIAL_REPLY = 48, 24, 8
"""A small minibatch: updates are where the time goes."""
WIDTH, LAYERS = 2048, 8
"""Of the products that are measured for a large model."""
PROBES, SLOWER, THREADS_START_S = 24, 3, 0.005
"""Probes of a count: enough not to fit into one lucky moment in which all threads run; how many times as long as on one
thread they may take, and what starting the threads takes at most, which the first of them does."""
REPEATS = 2
"""Further measurements of each count, alternating with the best one so far; the fastest counts."""
MARGIN = 0.1
"""Share of the time by which a higher count must win."""


def on_threads(function: Callable[[Any], T], parts: Sequence[Any]) -> list[T]:
    """What a function returns for each part; all have ended when this returns or raises."""
    others = [_threads(len(parts) - 1).submit(function, part) for part in parts[1:]]
    try:
        first = function(parts[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    """They stay: a new thread would have new memory from the system each time."""
    return ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))


def use_threads(policy: Policy, count: int) -> int:
    """Compute a policy on so many threads; their number."""
    is_small = (
        _is_small(policy) and not policy.model.backbone.shards
    )  # forwards of shards go in turn
    policy.threads = count if is_small else 1
    torch.set_num_threads(1 if is_small else count)
    return count


def calibrate_threads(
    step: Callable[[], object],
    use: Callable[[int], object] = torch.set_num_threads,
    *,
    budget_s: float = 0.5,
) -> int:
    """Set, and return, the number of threads on which `step` is fastest; one thread unless more are clearly faster.

    A count on which it is much slower at once is not measured again, and no higher one is tried.

    Args:
        step: work like the run's own, tens of milliseconds long.
        use: sets a number of threads.
        budget_s: after which nothing more is tried.
    """

    def timed(work: Callable[[], object], threads: int) -> float:
        use(threads)
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    began = time.perf_counter()
    timed(step, 1)
    best, best_s = 1, timed(step, 1)
    for count in sorted(
        {min(2**power, cores()) for power in range(1, cores().bit_length() + 1)} - {1}
    ):
        if time.perf_counter() - began > budget_s or _waits(timed, count):
            break
        here_s = timed(step, count)
        for _ in range(REPEATS):
            if here_s > 2 * best_s or time.perf_counter() - began > budget_s:
                break
            best_s = min(best_s, timed(step, best))
            here_s = min(here_s, timed(step, count))
        if here_s > best_s * (1 - MARGIN):
            break
        best, best_s = count, here_s
    use(best)
    return best


def calibrate_threads_for(policy: Policy) -> int:
    step = update_like_step(policy) if _is_small(policy) else wide_step()
    return calibrate_threads(step, partial(use_threads, policy))


def update_like_step(policy: Policy) -> Callable[[], object]:
    """Forward and backward of a small minibatch, without an optimizer step."""
    backbone = policy.model.backbone
    vocabulary = int(backbone.lm.config.get_text_config().vocab_size)
    start = TRIAL_LENGTH - TRIAL_REPLY
    turn = Turn(start, TRIAL_LENGTH, (0.0,) * TRIAL_REPLY, value=0.0, reward=0.0)
    ids = [
        [(row + 3 * column) % vocabulary for column in range(TRIAL_LENGTH)]
        for row in range(TRIAL_ROWS)
    ]
    rows = [Row(Segment(tuple(ids[0]), row, [turn]), number) for number, row in enumerate(ids)]
    limits = ForwardLimits(2 * TRIAL_ROWS * TRIAL_LENGTH, flat=backbone.is_lean)
    weights = [
        weight for weight in policy.model.pretrained_model.parameters() if weight.requires_grad
    ]

    def gradients(some: Sequence[Row]) -> object:
        parts = forwards(some, limits, backbone.device)
        logprobs = torch.cat([part.score(part.encode(backbone), 1.0).logprobs for part in parts])
        return torch.autograd.grad(logprobs.sum(), weights, allow_unused=True)

    return lambda: on_threads(gradients, parts_of(rows, policy.threads))


def wide_step() -> Callable[[], object]:
    """Products of a small minibatch's rows with the weights of wide layers."""
    rows, weight = torch.ones(TRIAL_LENGTH, WIDTH), torch.ones(WIDTH, WIDTH)
    return lambda: [rows @ weight for _ in range(LAYERS)]


def products() -> None:
    square = torch.ones(256, 256)
    for _ in range(4):
        square @ square


def _is_small(policy: Policy) -> bool:
    weights = list(policy.model.causal_lm.parameters())
    return (
        weights[0].device.type == "cpu" and sum(weight.numel() for weight in weights) <= SMALL_MODEL
    )


def _waits(timed: Callable[..., float], threads: int) -> bool:
    """Whether small products, each of which needs all threads at once, wait for a core that is busy."""
    left_s = SLOWER * PROBES * min(timed(products, 1) for _ in range(3)) + THREADS_START_S
    for _ in range(PROBES):
        left_s -= timed(products, threads)
        if (
            left_s < 0 or torch.get_num_threads() == 1
        ):  # then batches are divided, and no product has several threads
            return left_s < 0
    return False


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
