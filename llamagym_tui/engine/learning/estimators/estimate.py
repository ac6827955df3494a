"""What an estimator finds, and what several of them compute: returns, comparisons, normalisation.

An estimator is a pure function of a batch and the settings. Notation: T steps of a batch in E episodes, G groups.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.rewards import SMALLEST_SPREAD
from llamagym_tui.engine.learning.steps import Batch
from llamagym_tui.settings import PPOConfig


class Comparison(NamedTuple):
    """Outcomes that are compared with those of the same group."""

    peers: str
    """What the members of a group are, for people, as "episodes of its seed"."""
    outcomes: Tensor
    """(T,) what of each step is compared."""
    groups: Tensor
    """(T,) number of each step's group; -1: it is in none."""
    sizes: Tensor
    """(G,) members, which are episodes or steps."""
    means: Tensor
    """(G,) of their outcomes."""
    spreads: Tensor
    """(G,) standard deviations of their outcomes."""

    @property
    def differ(self) -> Tensor:
        """(G,) bool: whether the outcomes of a group differ."""
        # Equal returns that were summed in another order differ by their rounding.
        return self.spreads > SMALLEST_SPREAD * self.means.abs().clamp(min=1)

    @property
    def teaches(self) -> Tensor:
        """(T,) bool: whether a step is in a group whose outcomes differ."""
        return (self.groups >= 0) & self.of_steps(self.differ)

    def of_steps(self, of_groups: Tensor) -> Tensor:
        """(T,) what the group of each step has of (G,); 0 where it is in none."""
        padded = torch.cat([of_groups, of_groups.new_zeros(1)])
        return padded[self.groups]

    def deviations(self, *, divided: bool) -> Tensor:
        """(T,) how far each outcome is above its group's mean, in its spreads if `divided`; 0 where none differ."""
        above = self.outcomes - self.of_steps(self.means)
        if divided:
            above = above / self.of_steps(self.spreads).clamp(min=SMALLEST_SPREAD)
        return above * self.teaches


class Estimate(NamedTuple):
    advantages: Tensor
    """(T,) as they stand in the policy's loss."""
    returns: Tensor
    """(T,) what a value head is drawn to; without one, what the advantages come from."""
    comparisons: tuple[Comparison, ...] = ()
    """Where steps are compared with others of their group."""


def returns_to_go(batch: Batch, rewards: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """(T,) what follows from each step on, and (T,) bool whether that is known: the policy alone made what follows.

    Args:
        rewards: (T,) of the steps.
        gamma: discount per environment step.
    """
    steps = list(
        zip(rewards.tolist(), batch.steps.moves.tolist(), batch.steps.trained.tolist(), strict=True)
    )
    returns: list[float] = []
    known: list[bool] = []
    for length in reversed(batch.lengths):
        total = 0.0
        is_known = True
        for _ in range(length):
            reward, moves, is_trained = steps.pop()
            total = reward + gamma**moves * total
            is_known = is_known and is_trained
            returns.append(total)
            known.append(is_known)
    return torch.tensor(returns[::-1]), torch.tensor(known[::-1], dtype=torch.bool)


def episode_returns(batch: Batch, to_go: Tensor) -> Tensor:
    """(T,) the return of each step's whole episode, from (T,) returns to go."""
    firsts = torch.tensor([0, *batch.lengths[:-1]]).cumsum(
        0
    )  # (E,) index of each episode's first step
    return batch.by_step(to_go[firsts])


def compared(peers: str, outcomes: Tensor, keys: Sequence[Hashable], members: Tensor) -> Comparison:
    """Compare outcomes that have the same key.

    Args:
        peers: what the members of a group are, for people.
        outcomes: (T,) of steps.
        keys: T, of their groups.
        members: (T,) how much each step counts for its group: 0, 1, or its share of one member.
    """
    numbers: dict[Hashable, int] = {}
    is_member = (members > 0).tolist()
    groups = torch.tensor(
        [
            numbers.setdefault(key, len(numbers)) if is_in else -1
            for key, is_in in zip(keys, is_member, strict=True)
        ],
        dtype=torch.int64,
    )
    own = groups >= 0
    weights = members[own].double()
    known = outcomes[own].double()

    def sums(values: Tensor) -> Tensor:
        return values.new_zeros(len(numbers)).index_add(0, groups[own], values)

    sizes = sums(weights)
    means = sums(weights * known) / sizes
    squares = sums(weights * (known - means[groups[own]]).square())
    spreads = (squares / sizes).sqrt()
    return Comparison(peers, outcomes, groups, sizes.round().long(), means.float(), spreads.float())


def compared_episodes(
    peers: str, batch: Batch, returns: Tensor, keys: Sequence[Hashable]
) -> Comparison:
    """Compare whole episodes that have the same key; those in which someone else took a turn are in no group.

    Args:
        returns: (T,) the return of each step's episode.
        keys: E, of their groups. None: it is in none.
    """
    lengths = torch.tensor(batch.lengths)
    counts = [
        float(own and key is not None) / length
        for own, key, length in zip(batch.is_own, keys, batch.lengths, strict=True)
    ]
    of_steps = [keys[at] for at in batch.by_step(torch.arange(len(lengths))).tolist()]
    return compared(peers, returns, of_steps, batch.by_step(torch.tensor(counts)))


def compared_by_seed(batch: Batch, config: PPOConfig) -> tuple[Tensor, Comparison]:
    """(T,) the return of each step's episode, and these compared among the episodes of its seed.

    What a turn is charged for itself is no part of the return: added after the comparison, it is that turn's alone.
    """
    to_go, _ = returns_to_go(batch, batch.steps.rewards + batch.steps.charges, config.gamma)
    returns = episode_returns(batch, to_go)
    return returns, compared_episodes("episodes of its seed", batch, returns, batch.seeds)


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-6) -> Tensor:
    """(T,) advantages of a batch with mean 0 and standard deviation 1 over the (T,) mask of trained steps."""
    # Steps of someone else are left out: they have no loss, so they must not shift or scale those that have.
    kept = advantages[mask]
    if len(kept) < 2:
        return advantages
    return (advantages - kept.mean()) / (kept.std(unbiased=False) + eps)
