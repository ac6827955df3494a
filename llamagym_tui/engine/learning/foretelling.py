"""Kernel ridge regression: the error with which values of turns are foretold from other turns.

It answers the questions of a first batch: in which of a model's layers is the game seen, and do earlier turns help? A
straight line through the states would miss what several of their parts mean together. Notation: N turns or states, D
hidden size, K components, M values.
"""

import torch
from torch import Tensor

COMPONENTS = 32
"""Principal components of the states, K, at most."""
FOLDS = 4
"""Parts of the turns, of which each is foretold from the others."""
PENALTIES = (0.003, 0.03, 0.3, 3.0)
"""Of the ridge, in units of the kernel's diagonal. Each value has the best one for it."""


def errors(kernel: Tensor, values: Tensor, counts: Tensor, fold: Tensor) -> Tensor:
    """(N, M) squared errors of values foretold from other folds, in units of their spread; 0 where none counts.

    Args:
        kernel: (N, N) likeness of turns.
        values: (N, M).
        counts: (N,) bool, False for turns that have no values.
        fold: (N,) from 0 to `FOLDS` - 1.
    """
    found = torch.stack([_errors(kernel, values, counts, fold, penalty) for penalty in PENALTIES])
    best = found.mean(1).argmin(0)  # (M,)
    return found.gather(0, best.expand(1, len(values), -1)).squeeze(0)


def _errors(kernel: Tensor, values: Tensor, counts: Tensor, fold: Tensor, penalty: float) -> Tensor:
    found = torch.zeros_like(values)
    for held_out in range(FOLDS):
        here = counts & (fold == held_out)
        others = counts & (fold != held_out)
        if not here.any() or not others.any():
            continue
        mean = values[others].mean(0)
        spread = values[others].std(0).clamp(min=1e-9)
        known = kernel[others][:, others]
        scale = float(known.diagonal().mean())
        ridge = known + penalty * scale * torch.eye(len(known), dtype=known.dtype)
        weights = torch.linalg.solve(ridge, (values[others] - mean) / spread)
        foretold = kernel[here][:, others] @ weights
        found[here] = (foretold - (values[here] - mean) / spread).square()
    return found


def components(states: Tensor) -> Tensor:
    """(N, K) principal components of (N, D) states, in units of their largest spread."""
    centred = states - states.mean(0)
    left, lengths, _ = torch.linalg.svd(centred, full_matrices=False)
    largest = lengths[0].clamp(min=1e-12)
    count = min(COMPONENTS, int((lengths > 1e-3 * largest).sum()))
    return (left * lengths)[:, : max(count, 1)] / (largest / len(states) ** 0.5)


def similar(points: Tensor) -> Tensor:
    """(N, N) 1 for equal points, and less the further they are apart: half their typical distance is a length."""
    distances = torch.cdist(points, points).square()
    typical = distances.flatten()[:: max(1, distances.numel() // 10_000)].median().clamp(min=1e-12)
    return (-distances / (0.5 * typical)).exp()
