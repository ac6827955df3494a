"""The reward that PPO sees: the environment's, scaled, less the penalty for unread replies.

The KL to the reference is subtracted in `targets`, because it belongs to tokens and not to turns. K turns.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from llamagym_tui.engine.policy.trajectory import Trajectory, Turn

SMALLEST_SPREAD = 1e-6
"""Returns that spread less than this are all the same: there is nothing to scale by."""


class ReturnMoments(NamedTuple):
    """Number, mean and spread of the discounted returns from all turns on since a run began."""

    turns: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared distances from the mean."""

    def with_returns(self, returns: Sequence[float]) -> Self:
        """The moments of more turns; a return that is not finite is left out.

        Source: Chan, Golub and LeVeque 1979, for merging the moments of two samples.
        """
        new = [value for value in returns if math.isfinite(value)]
        if not new:
            return self
        mean = math.fsum(new) / len(new)
        squares = math.fsum((value - mean) ** 2 for value in new)
        turns = self.turns + len(new)
        apart = mean - self.mean
        return self._replace(
            turns=turns,
            mean=self.mean + apart * len(new) / turns,
            squares=self.squares + squares + apart**2 * self.turns * len(new) / turns,
        )

    @property
    def std(self) -> float:
        """Standard deviation; 0 of no returns."""
        return math.sqrt(self.squares / self.turns) if self.turns else 0.0

    @property
    def scale(self) -> float:
        """The factor that gives returns a standard deviation of 1; 1 while all are the same."""
        return 1 / self.std if self.std > SMALLEST_SPREAD else 1.0


def discounted_returns(trajectory: Trajectory, gamma: float) -> list[float]:
    """What follows from each turn of an episode on, the last one's first; those in earlier batches too."""
    found: list[float] = []
    total = 0.0
    for turn in (*reversed(trajectory.turns), *reversed(trajectory.earlier)):
        total = turn.reward + gamma**turn.steps * total
        found.append(total)
    return found


def turn_rewards(turns: Sequence[Turn], *, scale: float, parse_penalty: float) -> Tensor:
    """(K,) reward of each turn: the environment's times `scale`, less the penalty if the reply named no action, or one
    that the environment refused."""
    rewards = [
        scale * turn.reward - (parse_penalty if turn.parse_failed or turn.refused else 0.0)
        for turn in turns
    ]
    return torch.tensor(rewards)
