"""What a person's judgements tell about items: a Bayesian ridge for each action, on a model's states of the items.

An action's score at an item is 1 where the action is right and -1 / (A - 1) where it is wrong, so that a choice by
chance scores 0. Nothing is trained: each fit is of all judgements so far, and takes milliseconds.
Notation: N items, D hidden size, F features of an item, A actions, J judgements, S draws.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.directions import whitening

DIRECTIONS = 24
"""Directions in which states are seen, at most. More need more judgements."""
SCALE = 2.0
"""Length of a typical item's features beside the constant one."""
PRECISION = 1.0
"""Of the weights, before any judgement."""
NOISE = 0.1
"""Standard deviation of a judged score."""
DRAWS = 64
"""Draws of weights by which certainty is measured."""


class Judgement(NamedTuple):
    """A person's word on an action that was shown for an item."""

    item: int
    """Index from 0."""
    shown: int
    """The action that was shown."""
    label: int | None
    """The right action, which is `shown` where that was right. None: `shown` is wrong, and no more is known."""

    @property
    def is_right(self) -> bool:
        return self.label == self.shown


class Belief(NamedTuple):
    """The weights of each action's score: a normal distribution."""

    mean: Tensor
    """(A, F)."""
    spread: Tensor
    """(A, F, F) with which standard normal numbers become deviations from the mean."""


class Lens(NamedTuple):
    """The directions in which states are seen."""

    mean: Tensor
    """(D,)."""
    directions: Tensor
    """(F - 1, D)."""

    def features(self, states: Tensor) -> Tensor:
        """(N, F) features of (N, D) states; the last one is 1."""
        seen = (states - self.mean) @ self.directions.T
        width = max(1, seen.shape[1])
        scaled = seen * (SCALE / width**0.5)
        return torch.cat([scaled, torch.ones(len(states), 1)], dim=1)


def lens_of(states: Tensor) -> Lens:
    """The directions in which (N, D) states differ most, scaled so that they differ by as much in each."""
    mean = states.mean(0)
    if len(states) < 2 or not (states - mean).any():
        return Lens(mean, states[:0])
    return Lens(mean, whitening(states, states[:0], DIRECTIONS))


def fit(features: Tensor, judgements: Sequence[Judgement], actions: int) -> Belief:
    """The belief after all judgements.

    Args:
        features: (N, F).
        judgements: at most one for each item.
        actions: A, at least 2.
    """
    scores = _judged_scores(judgements, actions)  # (J, A), NaN where nothing is known
    judged = features[[judgement.item for judgement in judgements]].double()  # (J, F)
    prior = PRECISION * torch.eye(features.shape[1], dtype=torch.float64)
    means: list[Tensor] = []
    spreads: list[Tensor] = []
    for of_action in scores.T:
        known = ~of_action.isnan()
        rows = judged[known]
        covariance = torch.linalg.inv(prior + rows.T @ rows)
        means.append(covariance @ (rows.T @ of_action[known]))
        spreads.append(NOISE * torch.linalg.cholesky(covariance))
    return Belief(torch.stack(means).float(), torch.stack(spreads).float())


def _judged_scores(judgements: Sequence[Judgement], actions: int) -> Tensor:
    """(J, A) scores that are known from each judgement; NaN: nothing is known of this action."""
    wrong = -1 / (actions - 1)
    rows: list[list[float]] = []
    for judgement in judgements:
        label = judgement.label
        if label is None and actions == 2:
            label = 1 - judgement.shown
        if label is None:
            row = [math.nan] * actions
            row[judgement.shown] = wrong
        else:
            row = [wrong] * actions
            row[label] = 1.0
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, actions)


def choose(belief: Belief, features: Tensor, generator: torch.Generator) -> int:
    """The action to show for an item of (F,) features, by Thompson sampling: the best one by weights that are drawn."""
    (drawn,) = _drawn(belief, 1, generator)  # (A, F)
    return int((drawn @ features).argmax())


def ruled_out(judgements: Sequence[Judgement], items: int, actions: int) -> Tensor:
    """(N, A) True for an action that a judgement says is wrong for an item."""
    found = torch.zeros(items, actions, dtype=torch.bool)
    rows = [judgement.item for judgement in judgements]
    found[rows] = _judged_scores(judgements, actions) < 0
    return found


def sort(belief: Belief, features: Tensor, ruled_out: Tensor) -> Tensor:
    """(N,) the action with the highest mean score of those that are not (N, A) ruled out, for (N, F) items."""
    return (features @ belief.mean.T).masked_fill(ruled_out, -torch.inf).argmax(1)


def certainty(
    belief: Belief, features: Tensor, ruled_out: Tensor, generator: torch.Generator
) -> Tensor:
    """(N, A) the share of draws of the weights in which an action is the best one of those that are not ruled out.

    It takes a hundred times as long as `sort`.
    """
    best = torch.zeros(ruled_out.shape)
    every = torch.arange(len(features))
    for drawn in _drawn(belief, DRAWS, generator):
        scores = (features @ drawn.T).masked_fill(ruled_out, -torch.inf)
        best[every, scores.argmax(1)] += 1
    return best / DRAWS


def _drawn(belief: Belief, draws: int, generator: torch.Generator) -> Tensor:
    """(S, A, F) weights."""
    normal = torch.randn(draws, *belief.mean.shape, generator=generator)
    return belief.mean + torch.einsum("afg,sag->saf", belief.spread, normal)
