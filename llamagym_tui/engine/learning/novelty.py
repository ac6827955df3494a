"""What is seldom tried earns a little: a bonus on rewards that falls with the number of times that a reply was given.

Where every reward is the same until a goal is met, nothing in the rewards leads there. Each turn then earns
coef / sqrt(n), n the number of times that its reply was given to its prompt since the run began. Source: MBIE-EB,
Strehl and Littman 2008 (doi:10.1016/j.jcss.2007.08.009), whose bonus is added to the rewards of a model; here it is
added to those of the batch, less its mean over the batch. Without that, a bonus would pay for every further turn, and
the episode's end would cost it; and where no prompt comes twice there is none at all, as all turns have the same.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from llamagym_tui.engine.policy.trajectory import Trajectory

MOST_KNOWN = 100_000
"""Pairs of prompt and reply that are counted; others count as new, however often they come."""


class Novelty:
    """How often each reply was given to each prompt."""

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
