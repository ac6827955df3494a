"""The reward that PPO sees: the environment's, scaled, less the penalty for unread replies, with a bonus for novelty.

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
MOST_KNOWN = 100_000
"""Pairs of prompt and reply that are counted; others count as new, however often they come."""


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
    """The return from each turn of an episode on, the last one's first; those in earlier batches too."""
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


class Novelty:
    """A bonus for what is seldom tried: it falls with the number of times that a reply was given to its prompt.

    Where every reward is the same until a goal is met, nothing in the rewards leads there. Each turn then earns
    coef / sqrt(n), n the number of times that its reply was given to its prompt since the run began, less the mean of
    the batch. Without that, a bonus would pay for every further turn, and the end of an episode would cost it. Where no
    prompt comes twice all turns have the same, so there is none. Source: MBIE-EB, Strehl and Littman 2008
    (doi:10.1016/j.jcss.2007.08.009), whose bonus is added to the rewards of a model.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """By a number for each pair that is the same in every process."""

    def bonuses(self, trajectories: Sequence[Trajectory]) -> Tensor:
        """(K,) 1 / sqrt(n) of each turn of a batch, less their mean; the batch itself is counted first.

        0 for turns that someone else chose; they are not counted.
        """
        pairs: list[int | None] = []
        for trajectory in trajectories:
            for segment in trajectory.segments:
                for turn in segment.turns:
                    prompt = (segment.prefix, tuple(segment.ids[: turn.start]))
                    reply = tuple(segment.ids[turn.start : turn.end])
                    # Python hashes tuples of integers alike in all processes; a collision of 64 bits harms little.
                    pairs.append(hash((prompt, reply)) if turn.is_trained else None)
        for pair in pairs:
            if pair is None:
                continue
            if pair in self.counts or len(self.counts) < MOST_KNOWN:
                self.counts[pair] = self.counts.get(pair, 0) + 1
        own = torch.tensor([pair is not None for pair in pairs])
        found = torch.tensor(
            [0.0 if pair is None else self.counts.get(pair, 1) ** -0.5 for pair in pairs]
        )
        if own.any():
            found[own] -= found[own].mean()
        return found
