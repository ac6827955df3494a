"""The reward that PPO sees: the environment's, scaled, less the penalty for replies that name no action.

The KL to the reference is subtracted in `targets`, because it belongs to tokens and not to turns. K turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.policy.trajectory import Trajectory, Turn

SMALLEST_SPREAD = 1e-6
"""Returns that spread less than this are all the same: there is nothing to scale by."""


class ReturnMoments(NamedTuple):
    """Number, mean and spread of all episodes' discounted returns since a run began."""

    episodes: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared distances from the mean."""

    def with_returns(self, returns: Sequence[float]) -> ReturnMoments:
        """The moments of more episodes; a return that is not finite is left out.

        Source: Chan, Golub and LeVeque 1979, for merging the moments of two samples.
        """
        new = [value for value in returns if math.isfinite(value)]
        if not new:
            return self
        mean = math.fsum(new) / len(new)
        squares = math.fsum((value - mean) ** 2 for value in new)
        episodes, apart = self.episodes + len(new), mean - self.mean
        return ReturnMoments(
            episodes,
            self.mean + apart * len(new) / episodes,
            self.squares + squares + apart**2 * self.episodes * len(new) / episodes,
        )

    @property
    def std(self) -> float:
        return math.sqrt(self.squares / self.episodes) if self.episodes else 0.0

    @property
    def scale(self) -> float:
        """The factor that gives returns a standard deviation of 1; 1 while all are the same."""
        return 1 / self.std if self.std > SMALLEST_SPREAD else 1.0


def discounted_return(trajectory: Trajectory, gamma: float) -> float:
    total = 0.0
    for turn in reversed(trajectory.turns):
        total = turn.reward + gamma * total
    return total


def turn_rewards(turns: Sequence[Turn], *, scale: float, parse_penalty: float) -> Tensor:
    """(K,) reward of each turn: the environment's times `scale`, less the penalty if the reply named no action."""
    return torch.tensor([scale * turn.reward - parse_penalty * turn.parse_failed for turn in turns])
