"""A batch as steps: turns, each with a reward and a value.

Estimators of advantages (`estimators`) read it, and compare its steps or episodes with others of their group.

Notation: T steps of a batch, its turns, episode after episode; E episodes; G groups.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.rewards import SMALLEST_SPREAD
from llamagym_tui.engine.policy.trajectory import Turn


class Steps(NamedTuple):
    """The turns of a batch, its episodes one after the other. One that someone else chose stays, without loss."""

    rewards: Tensor
    """(T,) less all penalties."""
    values: Tensor
    """(T,) before each turn."""
    moves: Tensor
    """(T,) environment steps of its action, each discounted by `gamma`."""
    trained: Tensor
    """(T,) bool: True if the policy made it."""
    charges: Tensor
    """(T,) KL penalty less novelty bonus. Each turn pays it alone where its episode is compared with others."""


def steps_of(turns: Sequence[Turn], rewards: Tensor, penalties: Tensor) -> Steps:
    """Turns as steps, with (T,) rewards, and (T,) penalties for the KL, which are subtracted."""
    return Steps(
        rewards=rewards - penalties,
        values=torch.tensor([turn.value for turn in turns]),
        moves=torch.tensor([turn.steps for turn in turns], dtype=torch.int64),
        trained=torch.tensor([turn.is_trained for turn in turns], dtype=torch.bool),
        charges=penalties,
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """T steps in E episodes, as an estimator of advantages sees them."""

    steps: Steps
    lengths: Sequence[int]
    """(E,) steps of each."""
    bootstraps: Sequence[float]
    """(E,) value after each: V(final observation) if it was truncated and there is a critic, else 0."""
    seeds: Sequence[int | None]
    """(E,) the same number where episodes were reset to the same seed. None: it is not known."""
    observations: Sequence[int]
    """(T,) the same number where steps have the same observation; empty where no step is compared by it."""

    @property
    def firsts(self) -> Tensor:
        """(E,) index of each episode's first step."""
        return torch.tensor([0, *self.lengths[:-1]]).cumsum(0)

    @property
    def known(self) -> Tensor:
        """(T,) bool: True if the policy alone made this step and all that follow it in the episode."""
        trained = self.steps.trained.tolist()
        known: list[bool] = []
        for length in reversed(self.lengths):
            is_known = True
            for _ in range(length):
                is_known = is_known and trained.pop()
                known.append(is_known)
        return torch.tensor(known[::-1], dtype=torch.bool)

    def by_step(self, of_episodes: Tensor) -> Tensor:
        """(T,) the value that each step's episode has among (E,)."""
        return of_episodes.repeat_interleave(torch.tensor(self.lengths, dtype=torch.int64))


class Comparison(NamedTuple):
    """Outcomes of steps, or of their episodes, compared with those of the same group."""

    peers: str
    """The members of a group, for people, such as "episodes of its seed"."""
    outcomes: Tensor
    """(T,) the number that is compared."""
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
        """(G,) bool: True if the outcomes of a group differ."""
        # Equal returns that were summed in another order differ by their rounding.
        return self.spreads > SMALLEST_SPREAD * self.means.abs().clamp(min=1)

    @property
    def teaches(self) -> Tensor:
        """(T,) bool: True if a step is in a group whose outcomes differ."""
        return (self.groups >= 0) & self.of_steps(self.differ)

    def of_steps(self, of_groups: Tensor) -> Tensor:
        """(T,) the value that each step's group has among (G,); 0 where it is in none."""
        padded = torch.cat([of_groups, of_groups.new_zeros(1)])
        return padded[self.groups]

    def deviations(self, *, divided: bool) -> Tensor:
        """(T,) each outcome less its group's mean, in its spreads if `divided`; 0 where none differ."""
        above = self.outcomes - self.of_steps(self.means)
        if divided:
            above = above / self.of_steps(self.spreads).clamp(min=SMALLEST_SPREAD)
        return above * self.teaches


def compared(peers: str, outcomes: Tensor, keys: Sequence[Hashable]) -> Comparison:
    """Compare (T,) outcomes that have the same of T keys; those of the key None are in no group."""
    numbers: dict[Hashable, int] = {}
    found = [-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys]
    groups = torch.tensor(found, dtype=torch.int64)
    own = groups >= 0
    known = outcomes[own].double()

    def sums(values: Tensor) -> Tensor:
        return values.new_zeros(len(numbers)).index_add(0, groups[own], values)

    sizes = sums(torch.ones_like(known))
    means = sums(known) / sizes
    squares = sums((known - means[groups[own]]).square())
    spreads = (squares / sizes).sqrt()
    return Comparison(peers, outcomes, groups, sizes.long(), means.float(), spreads.float())


def compared_episodes(
    peers: str, batch: Batch, to_go: Tensor, keys: Sequence[Hashable]
) -> Comparison:
    """Compare the returns of whole episodes; those in which someone else took a turn are in no group.

    Args:
        to_go: (T,) returns to go.
        keys: E, of their groups. None: it is in none.
    """
    is_own = batch.known[batch.firsts].tolist()
    own_keys = [key if own else None for key, own in zip(keys, is_own, strict=True)]
    of_episodes = compared(peers, to_go[batch.firsts], own_keys)
    return of_episodes._replace(
        outcomes=batch.by_step(of_episodes.outcomes), groups=batch.by_step(of_episodes.groups)
    )
