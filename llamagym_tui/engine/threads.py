"""Choosing torch's intra-op threads by measurement: on a busy machine, as many as cores can be far slower than one.

A few small products reveal a busy machine in little time. Elsewhere more threads must win clearly at an update's own
work, measured alternately with the best count so far. For large models an update takes too long, so the products of a
wide layer are measured.
"""

import os
import time
from collections.abc import Callable

import torch

from llamagym_tui.engine.learning.batch import Row, forwards
from llamagym_tui.engine.model.shape import ForwardLimits
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Segment, Turn

SMALL_MODEL = 20_000_000
"""Parameters up to which an update's own work is measured."""
TRIAL_ROWS, TRIAL_LENGTH, TRIAL_REPLY = 16, 24, 8
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


def calibrate_threads(step: Callable[[], object], *, budget_s: float = 0.5) -> int:
    """Set, and return, the number of threads on which `step` is fastest; one thread unless more are clearly faster.

    A count on which it is much slower at once is not measured again, and no higher one is tried.

    Args:
        step: work like the run's own, tens of milliseconds long.
        budget_s: after which nothing more is tried.
    """
    began = time.perf_counter()
    _timed(step, 1)
    best, best_s = 1, _timed(step, 1)
    for count in _counts(cores()):
        if time.perf_counter() - began > budget_s or _waits(count):
            break
        here_s = _timed(step, count)
        for _ in range(REPEATS):
            if here_s > 2 * best_s or time.perf_counter() - began > budget_s:
                break
            best_s = min(best_s, _timed(step, best))
            here_s = min(here_s, _timed(step, count))
        if here_s > best_s * (1 - MARGIN):
            break
        best, best_s = count, here_s
    torch.set_num_threads(best)
    return best


def calibrate_threads_for(policy: Policy) -> int:
    parameters = sum(weight.numel() for weight in policy.model.causal_lm.parameters())
    return calibrate_threads(update_like_step(policy) if parameters <= SMALL_MODEL else wide_step())


def update_like_step(policy: Policy) -> Callable[[], object]:
    """Forward and backward of a small minibatch, without an optimizer step."""
    backbone = policy.model.backbone
    vocabulary = int(backbone.lm.config.get_text_config().vocab_size)
    start = TRIAL_LENGTH - TRIAL_REPLY
    turn = Turn(start, TRIAL_LENGTH, (0.0,) * TRIAL_REPLY, value=0.0, reward=0.0)
    ids = [[(row + 3 * column) % vocabulary for column in range(TRIAL_LENGTH)] for row in range(TRIAL_ROWS)]
    rows = [Row(Segment(tuple(ids[0]), row, [turn]), number) for number, row in enumerate(ids)]
    parts = list(forwards(rows, ForwardLimits(2 * TRIAL_ROWS * TRIAL_LENGTH), backbone.device))
    weights = [weight for weight in policy.model.pretrained_model.parameters() if weight.requires_grad]

    def step() -> object:
        logprobs = torch.cat([part.score(part.encode(backbone), 1.0).logprobs for part in parts])
        return torch.autograd.grad(logprobs.sum(), weights, allow_unused=True)

    return step


def wide_step() -> Callable[[], object]:
    """Products of a small minibatch's rows with the weights of wide layers."""
    rows, weight = torch.ones(TRIAL_LENGTH, WIDTH), torch.ones(WIDTH, WIDTH)
    return lambda: [rows @ weight for _ in range(LAYERS)]


def products() -> None:
    square = torch.ones(256, 256)
    for _ in range(4):
        square @ square


def _waits(threads: int) -> bool:
    """Whether small products, each of which needs all threads at once, wait for a core that is busy."""
    left_s = SLOWER * PROBES * min(_timed(products, 1) for _ in range(3)) + THREADS_START_S
    for _ in range(PROBES):
        left_s -= _timed(products, threads)
        if left_s < 0:
            return True
    return False


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _counts(cores: int) -> list[int]:
    """Thread counts to try after one: doubling, up to all cores."""
    return sorted({min(2**power, cores) for power in range(1, cores.bit_length() + 1)} - {1})


def _timed(step: Callable[[], object], threads: int) -> float:
    torch.set_num_threads(threads)
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
