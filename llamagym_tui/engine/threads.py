"""Choosing torch's intra-op threads by measurement: on a busy machine, as many as cores can be far slower than one.

A few small products reveal a busy machine in little time. Elsewhere more threads must win clearly at an update's own
work, measured alternately with the best count so far. For large models an update takes too long, so the products of one
of their layers are measured.
"""

import os
import time
from collections.abc import Callable, Iterator

import torch

from llamagym_tui.engine.learning.batch import batch_rows, forwards
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Segment, Trajectory, Turn

SMALL_MODEL = 20_000_000
"""Parameters up to which an update's own work is measured."""
TRIAL_ROWS, TRIAL_LENGTH, TRIAL_REPLY = 16, 24, 8
"""A small minibatch: updates are where the time goes."""
PROBES = 24
"""Enough not to fit into one lucky moment in which all threads run."""
THREADS_START_S = 0.005
"""Starting threads, which the first call on them does, takes less."""
REPEATS = 2
"""Further measurements of each count, alternating with the best one so far; the fastest counts."""
MARGIN = 0.1
"""Share of the time by which a higher count must win."""
TRIAL_WEIGHTS = 50_000_000
"""Weights of a large model, at most about, that a trial multiplies by."""


def calibrate_threads(step: Callable[[], object], probe: Callable[[], object], *, budget_s: float = 0.5) -> int:
    """Set, and return, the number of threads on which `step` is fastest; one thread unless more are clearly faster.

    A count on which the probe or the step is much slower at once is not measured again, and no higher one is tried.

    Args:
        step: work like the run's own, tens of milliseconds long.
        probe: a few calls that use all threads, some milliseconds long. Where threads wait for a busy core, it takes
            many times as long.
        budget_s: after which nothing more is tried.
    """
    began = time.perf_counter()
    _timed(step, 1)
    best, best_s = 1, _timed(step, 1)
    probe_s = min(_timed(probe, 1) for _ in range(3))
    for count in _counts(cores()):
        if time.perf_counter() - began > budget_s or _waits(probe, count, probe_s):
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
    return calibrate_threads(
        update_like_step(policy) if parameters <= SMALL_MODEL else layer_like_step(policy), products
    )


def products() -> None:
    """A few products of small matrices, each of which needs all threads at once."""
    square = torch.ones(256, 256)
    for _ in range(4):
        square @ square


def update_like_step(policy: Policy) -> Callable[[], object]:
    """Forward and backward of a small minibatch, without an optimizer step."""
    backbone = policy.model.backbone
    vocabulary = int(backbone.lm.config.get_text_config().vocab_size)
    start = TRIAL_LENGTH - TRIAL_REPLY
    turn = Turn(start, TRIAL_LENGTH, (0.0,) * TRIAL_REPLY, value=0.0, reward=0.0)
    ids = [[(row + 3 * column) % vocabulary for column in range(TRIAL_LENGTH)] for row in range(TRIAL_ROWS)]
    segments = [Segment(tuple(ids[0]), row, [turn]) for row in ids]
    batch = batch_rows([Trajectory([segment], "terminated") for segment in segments])
    parts = list(forwards(batch, tokens=2 * TRIAL_ROWS * TRIAL_LENGTH, device=backbone.device))
    weights = [weight for weight in policy.model.pretrained_model.parameters() if weight.requires_grad]

    def step() -> object:
        logprobs = torch.cat([part.score(part.encode(backbone), 1.0).logprobs for part in parts])
        return torch.autograd.grad(logprobs.sum(), weights, allow_unused=True)

    return step


def layer_like_step(policy: Policy) -> Callable[[], object]:
    """Products with the weights of about one layer, embeddings left out."""
    lm = policy.model.causal_lm
    apart = {id(lm.get_input_embeddings().weight), id(lm.get_output_embeddings().weight)}
    weights: list[torch.Tensor] = []
    for weight in lm.parameters():
        if len(weights) == 8 or sum(taken.numel() for taken in weights) > TRIAL_WEIGHTS:
            break
        if weight.dim() == 2 and weight.is_floating_point() and id(weight) not in apart:
            weights.append(weight.detach())
    inputs = [weight.new_ones(TRIAL_LENGTH, weight.shape[1]) for weight in weights]
    return lambda: [rows @ weight.T for rows, weight in zip(inputs, weights, strict=True)]


def _waits(probe: Callable[[], object], threads: int, single_s: float) -> bool:
    """Whether probes take far longer than on one thread; it stops measuring as soon as they have."""
    spent_s, allowed_s = 0.0, 3 * PROBES * single_s + THREADS_START_S
    for _ in range(PROBES):
        spent_s += _timed(probe, threads)
        if spent_s > allowed_s:
            return True
    return False


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _counts(cores: int) -> Iterator[int]:
    """Thread counts to try after one: doubling, up to all cores."""
    count = 2
    while count < cores:
        yield count
        count *= 2
    if cores > 1:
        yield cores


def _timed(step: Callable[[], object], threads: int) -> float:
    torch.set_num_threads(threads)
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
