"""How many threads a run computes on, found by measurement.

What threads share differs with the size of the model. Matrix products of a small model are too short to be divided:
where the machine is busy, threads would wait for each other in each product. So a batch of it is divided among threads
(`llamagym_tui.engine.parallel`), at the cost of a prefix and a gradient for each part. With a larger model the batch is
whole, and torch divides each product.

On a busy machine, as many threads as cores can be far slower than one. So counts are timed: for a small model with the
work of an update, for a larger one, whose update would take too long, with products of a wide layer. Before either, a
few small products reveal a busy machine. More threads must win clearly, alternately with the best count so far.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

from llamagym_tui.engine.learning.packing import Row, forwards, parts_of
from llamagym_tui.engine.model.shape import ForwardLimits
from llamagym_tui.engine.own_torch import own_torch, set_threads
from llamagym_tui.engine.parallel import on_threads
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Segment, Turn

SMALL_MODEL = 20_000_000
"""Weights up to which batches are divided, and not products."""
TRIAL_ROWS = 48
"""Rows of the small minibatch that is measured for a small model: updates are where the time goes."""
TRIAL_LENGTH = 24
"""Tokens of each of its rows."""
TRIAL_REPLY = 8
"""Tokens at the end of each row that are scored."""
WIDTH = 2048
"""Inputs and outputs of the layers whose products are measured for a large model."""
LAYERS = 8
"""The number of these layers."""
PROBES = 24
"""Small products for each count: enough not to fit into one lucky moment in which all threads run."""
SLOWER = 3
"""How many times as long as on one thread the probes of a count may take."""
THREADS_START_S = 0.005
"""What starting the threads takes at most; the first probe starts them."""
REPEATS = 2
"""Further measurements of each count, alternating with the best one so far; the fastest counts."""
MARGIN = 0.1
"""Share of the time by which a higher count must win."""


def use_threads(policy: Policy, count: int) -> int:
    """Compute a policy on so many threads; their number."""
    if _is_small(policy):
        policy.threads = count
        set_threads(1)
    else:
        policy.threads = 1
        set_threads(count)
    return count


def calibrate_threads(
    step: Callable[[], object],
    use: Callable[[int], object] = set_threads,
    *,
    budget_s: float = 0.5,
) -> int:
    """Set, and return, the number of threads on which `step` is fastest; one thread unless more are clearly faster.

    A count on which it is much slower at once is not measured again, and no higher one is tried.

    Args:
        step: work like the run's own, tens of milliseconds long.
        use: sets a number of threads.
        budget_s: seconds after which nothing more is tried.
    """

    def timed(work: Callable[[], object], threads: int) -> float:
        use(threads)
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    began = time.perf_counter()
    timed(step, 1)  # the first time takes longer: memory is new, and code is loaded
    best = 1
    best_s = timed(step, 1)
    # Powers of two, and all cores: on 6 cores 2, 4 and 6.
    powers = {min(2**power, cores()) for power in range(1, cores().bit_length() + 1)}
    for count in sorted(powers - {1}):
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
        best = count
        best_s = here_s
    use(best)
    return best


@own_torch()
def calibrate_threads_for(policy: Policy) -> int:
    """Set, and return, the number of threads on which a policy of this size is computed fastest."""
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
    prefix = tuple(ids[0])
    rows = [Row(Segment(prefix, row, [turn]), number) for number, row in enumerate(ids)]
    limits = ForwardLimits(2 * TRIAL_ROWS * TRIAL_LENGTH, flat=backbone.is_lean)
    trained = [
        weight for weight in policy.model.pretrained_model.parameters() if weight.requires_grad
    ]

    def gradients(some: Sequence[Row]) -> object:
        parts = forwards(some, limits, backbone.device)
        logprobs = torch.cat([part.score(part.encode(backbone), 1.0).logprobs for part in parts])
        return torch.autograd.grad(logprobs.sum(), trained, allow_unused=True)

    return lambda: on_threads(gradients, parts_of(rows, policy.threads))


def wide_step() -> Callable[[], object]:
    """Products of a small minibatch's rows with the weights of wide layers."""
    rows = torch.ones(TRIAL_LENGTH, WIDTH)
    weight = torch.ones(WIDTH, WIDTH)
    return lambda: [rows @ weight for _ in range(LAYERS)]


def products() -> None:
    """A few small products, of the size at which threads that wait for each other show."""
    square = torch.ones(256, 256)
    for _ in range(4):
        square @ square


def _is_small(policy: Policy) -> bool:
    """Whether a model is on the processor and of so few weights that batches are divided, and not products."""
    weights = list(policy.model.causal_lm.parameters())
    count = sum(weight.numel() for weight in weights)
    return weights[0].device.type == "cpu" and count <= SMALL_MODEL


def _waits(timed: Callable[..., float], threads: int) -> bool:
    """Whether small products, each of which needs all threads at once, wait for a core that is busy."""
    left_s = SLOWER * PROBES * min(timed(products, 1) for _ in range(3)) + THREADS_START_S
    for _ in range(PROBES):
        left_s -= timed(products, threads)
        if left_s < 0:
            return True
        if torch.get_num_threads() == 1:
            return False  # batches are divided, so no product has several threads
    return False


def cores() -> int:
    """The number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
