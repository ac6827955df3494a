"""Estimators of advantages: one for each learner, a pure function of a batch and the settings.

To add one, write a function here, its entry in `ESTIMATORS`, and its facts in `settings/ppo.py`. Each differs from its
source in PPO's clipped objective, by which a batch can be used several times. Steps that someone else took, and without
a critic all steps before one, teach nothing.

Notation: T steps of a batch, its turns, in E episodes; G groups; r_t reward, V_t value, G_t return from step t on, R
return of the episode.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.rewards import SMALLEST_SPREAD
from llamagym_tui.settings import LearnerName, PPOConfig


@dataclass(frozen=True, slots=True)
class Batch:
    """T steps in E episodes, one after the other. A step that someone else chose stays, without loss."""

    rewards: Tensor
    """(T,) less all penalties."""
    values: Tensor
    """(T,) before each step."""
    moves: Tensor
    """(T,) environment steps of its action, each discounted by `gamma`."""
    trained: Tensor
    """(T,) bool: True if the policy made it."""
    charges: Tensor
    """(T,) KL penalty less novelty bonus. Each step pays it alone where its episode is compared with others."""
    lengths: Sequence[int]
    """(E,) steps of each."""
    bootstraps: Sequence[float]
    """(E,) value after each: V(final observation) if it was truncated and there is a critic, else 0."""
    seeds: Sequence[int | None]
    """(E,) the same number where episodes were reset to the same seed. None: it is not known."""
    observations: Sequence[str]
    """(T,) before each step."""

    @property
    def firsts(self) -> Tensor:
        """(E,) index of each episode's first step."""
        return torch.tensor([0, *self.lengths[:-1]]).cumsum(0)

    @property
    def known(self) -> Tensor:
        """(T,) bool: True if the policy alone made this step and all that follow it in the episode."""
        trained = self.trained.tolist()
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

    def of_steps(self, of_groups: Tensor) -> Tensor:
        """(T,) the value that each step's group has among (G,); 0 where it is in none."""
        padded = torch.cat([of_groups, of_groups.new_zeros(1)])
        return padded[self.groups]

    def deviations(self, *, divided: bool) -> Tensor:
        """(T,) each outcome less its group's mean, in its spreads if `divided`; 0 where none differ."""
        above = self.outcomes - self.of_steps(self.means)
        if divided:
            above = above / self.of_steps(self.spreads).clamp(min=SMALLEST_SPREAD)
        return above * ((self.groups >= 0) & self.of_steps(self.differ))


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


class Estimate(NamedTuple):
    advantages: Tensor
    """(T,) as they stand in the policy's loss."""
    returns: Tensor
    """(T,) the value head's targets; without a critic, the returns to go."""
    comparisons: tuple[Comparison, ...] = ()
    """Comparisons of steps with others of their group."""


def generalised(batch: Batch, config: PPOConfig) -> Estimate:
    """PPO: generalised advantage estimation with a critic, whitened over the batch if configured.

    delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1}. Source: arXiv:1506.02438, eq. 16.
    """
    advantages = batch_advantages(
        batch.rewards,
        batch.values,
        batch.moves,
        batch.lengths,
        batch.bootstraps,
        gamma=config.gamma,
        lam=config.lam,
        trained=batch.trained,
    )
    returns = advantages + batch.values
    # Over the batch and not over the minibatch, so that an advantage does not depend on what it is drawn with.
    if config.whiten_advantages:
        advantages = whiten(advantages, batch.trained)
    return Estimate(advantages, returns)


def returns_alone(batch: Batch, config: PPOConfig) -> Estimate:
    """REINFORCE: A_t = G_t, without a baseline. Source: Williams 1992 (doi:10.1007/BF00992696)."""
    returns = returns_to_go(batch, batch.rewards, config.gamma)
    return Estimate(returns * batch.known, returns)


def normalised_returns(batch: Batch, config: PPOConfig) -> Estimate:
    """ReBN: REINFORCE with returns that are normalised over the turns of the batch.

    A_t = (G_t - mean(G)) / std(G). Source: arXiv:2510.01051 (GEM), section 2.2, "return batch normalization". It
    differs from the paper in that the KL to the reference is part of the return.
    """
    returns = returns_to_go(batch, batch.rewards, config.gamma)
    known = batch.known
    keys = [0 if is_known else None for is_known in known.tolist()]
    whole = compared("turns of the batch", returns, keys)
    return Estimate(whiten(returns, known) * known, returns, (whole,))


def leave_one_out(batch: Batch, config: PPOConfig) -> Estimate:
    """RLOO: each episode's return less the mean of the others of its seed.

    A_i = R_i - mean of R_j over the other episodes j of the group, for every turn of episode i. Source:
    arXiv:2402.14740, eq. 8 (REINFORCE Leave-One-Out). It differs from the paper in that a group is of episodes that
    were reset to one seed; and in the KL to the reference and the novelty bonus, which each turn has to itself, after
    the comparison. An episode alone in its group teaches nothing.
    """
    group = _compared_by_seed(batch, config)
    sizes = group.of_steps(group.sizes)
    # R - mean of the others = (R - mean of all) n / (n - 1)
    advantages = group.deviations(divided=False) * sizes / (sizes - 1).clamp(min=1)
    return Estimate((advantages - batch.charges) * batch.trained, group.outcomes, (group,))


def group_relative(batch: Batch, config: PPOConfig) -> Estimate:
    """GRPO: each episode's return less the mean of its seed, in standard deviations of its seed.

    A_i = (R_i - mean(R)) / std(R) over the episodes of a group, for every turn of episode i. Each episode weighs the
    same in the loss: a turn of it one over its number of turns. Source: arXiv:2402.03300, section 4.1. It differs from
    the paper in that a group is of episodes that were reset to one seed; in turns where the paper has tokens, so that a
    long reply weighs no less than a short one; in a standard deviation that is divided by the number of episodes; and
    in the KL to the reference, which the paper has in the loss, and the novelty bonus. Each turn has these to itself:
    divided by the spread of a group that earns the same, either would be all that is followed.

    Two corrections are those of Dr. GRPO (arXiv:2503.20783): `correct_spread` leaves out the division by std(R), by
    which a group that nearly agrees counts as much as one that differs; `correct_length` lets turns weigh alike.
    """
    group = _compared_by_seed(batch, config)
    advantages = group.deviations(divided=not config.correct_spread) - batch.charges
    if not config.correct_length:
        lengths = torch.tensor(batch.lengths, dtype=torch.float32)
        advantages = advantages * batch.by_step(lengths.mean() / lengths)
    return Estimate(advantages * batch.trained, group.outcomes, (group,))


def group_in_group(batch: Batch, config: PPOConfig) -> Estimate:
    """GiGPO: episodes are compared with those that began alike, and turns with those that had the same observation.

    A_t = (R - mean(R)) / std(R) + (G_t - mean(G)) / std(G): R among the episodes whose first observation was the same,
    G_t among the turns of the batch that had the observation of t, its anchor. Source: arXiv:2505.10978, eq. 3, 6, 7
    and 8, with omega 1. It differs from the paper in that groups are of equal observations in the whole batch; in a
    standard deviation that is divided by the number of members; and in the KL to the reference and the novelty bonus,
    which each turn has to itself, after the comparison. `correct_spread` leaves both divisions out, as the paper's
    second form does (F_norm = 1).
    """
    to_go = returns_to_go(batch, batch.rewards + batch.charges, config.gamma)
    began = [batch.observations[first] for first in batch.firsts.tolist()]
    episodes = compared_episodes("episodes that began alike", batch, to_go, began)
    anchors = [
        observation if is_known else None
        for observation, is_known in zip(batch.observations, batch.known.tolist(), strict=True)
    ]
    turns = compared("turns on its observation", to_go, anchors)
    divided = not config.correct_spread
    advantages = episodes.deviations(divided=divided) + turns.deviations(divided=divided)
    return Estimate((advantages - batch.charges) * batch.trained, to_go, (episodes, turns))


ESTIMATORS: dict[LearnerName, Callable[[Batch, PPOConfig], Estimate]] = {
    "ppo": generalised,
    "reinforce": returns_alone,
    "rebn": normalised_returns,
    "rloo": leave_one_out,
    "grpo": group_relative,
    "gigpo": group_in_group,
}


def _compared_by_seed(batch: Batch, config: PPOConfig) -> Comparison:
    """The returns of episodes compared with those of the same seed.

    Per-turn penalties (KL, novelty) are left out here and subtracted from each turn's advantage afterwards.
    """
    to_go = returns_to_go(batch, batch.rewards + batch.charges, config.gamma)
    return compared_episodes("episodes of its seed", batch, to_go, batch.seeds)


def returns_to_go(batch: Batch, rewards: Tensor, gamma: float) -> Tensor:
    """(T,) discounted sum of (T,) rewards from each step on."""
    return batch_advantages(
        rewards,
        torch.zeros_like(rewards),
        batch.moves,
        batch.lengths,
        [0.0] * len(batch.lengths),
        gamma=gamma,
        lam=1.0,
    )


def batch_advantages(
    rewards: Tensor,
    values: Tensor,
    moves: Tensor,
    lengths: Sequence[int],
    bootstraps: Sequence[float],
    *,
    gamma: float,
    lam: float,
    trained: Tensor | None = None,
) -> Tensor:
    """(T,) generalised advantage estimates of episodes that stand one after the other; none leaks into another.

    The trace is cut at a step of someone else, so the steps before it are credited by its value alone. That is V-trace
    with a ratio of 0 where the policy did not act.

    Args:
        rewards: (T,) reward of each step.
        values: (T,) value before each step.
        moves: (T,) environment steps of each, which `gamma` discounts.
        lengths: steps of each episode.
        bootstraps: value after each episode; 0 if it terminated, V(final observation) if it was truncated.
        gamma: discount per environment step: with actions that take several, a semi-Markov decision process.
        lam: lambda per turn.
        trained: (T,) bool: the steps that the policy made. None: all.
    Raises:
        ValueError: `rewards`, `values` and `lengths` differ in their number of steps.
    Source: arXiv:1506.02438, eq. 16; the cut trace: arXiv:1802.01561, eq. 1; several steps: arXiv:2401.14151.
    """
    if not len(rewards) == len(values) == len(moves) == sum(lengths):
        raise ValueError(
            f"{len(rewards)} rewards and {len(values)} values of {sum(lengths)} steps: each step has one of both."
        )
    own = [True] * len(values) if trained is None else trained.tolist()
    # Plain numbers, because for short episodes they are faster than tensors; from the last step to the first.
    steps = list(zip(rewards.tolist(), values.tolist(), moves.tolist(), own, strict=True))
    found: list[float] = []
    for length, bootstrap in reversed(list(zip(lengths, bootstraps, strict=True))):
        following_value = bootstrap
        following_advantage = 0.0
        for _ in range(length):
            reward, value, moved, is_own = steps.pop()
            # delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1}
            discount = gamma**moved
            delta = reward + discount * following_value - value
            following_advantage = delta + discount * lam * following_advantage
            found.append(following_advantage)
            following_value = value
            if not is_own:
                following_advantage = 0.0
    return torch.tensor(found[::-1], dtype=values.dtype)


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-6) -> Tensor:
    """(T,) advantages of a batch with mean 0 and standard deviation 1 over the (T,) mask of trained steps."""
    # Steps of someone else are left out: they have no loss, so they must not shift or scale those that have.
    kept = advantages[mask]
    if len(kept) < 2:
        return advantages
    return (advantages - kept.mean()) / (kept.std(unbiased=False) + eps)
