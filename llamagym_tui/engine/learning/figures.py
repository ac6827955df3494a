"""Figures of an update, and the batch that it used, for the inspector."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from llamagym_tui.engine.learning.losses import UpdateSums
from llamagym_tui.engine.learning.targets import Targets, explained_variance
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.settings import PPOConfig, UpdateStats


def design_effect(returns: Sequence[float], seeds: Sequence[int | None]) -> float:
    """The factor on the variance of a mean return that comes from episodes with the same seed.

    The variance is that of clusters: of the sums, seed by seed, of returns less their mean. At least 1, as episodes of
    one seed have at most as much to say as others; a single seed says as much as one episode.

    Args:
        returns: N, of episodes.
        seeds: N, the same number where episodes were reset to the same seed. None: to one of its own.
    Source: Kish, Survey Sampling (1965), section 5.4.
    """
    count = len(returns)
    if count < 2:
        return 1.0
    mean = sum(returns) / count
    sums: dict[object, float] = {}
    for number, (value, seed) in enumerate(zip(returns, seeds, strict=True)):
        cluster = ("alone", number) if seed is None else seed
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    if len(sums) == 1:
        return float(count)
    squares = sum((value - mean) ** 2 for value in returns)
    if not squares:
        return 1.0
    of_clusters = sum(value**2 for value in sums.values())
    # Both sums of squares have one degree of freedom less than members.
    unbiased = (count - 1) / count * len(sums) / (len(sums) - 1)
    return max(1.0, of_clusters / squares * unbiased)


def flat_groups(targets: Targets) -> float:
    """Share of a batch's groups whose outcomes do not differ; 0 where nothing is compared."""
    if not targets.comparisons:
        return 0.0
    differ = torch.cat([each.differ for each in targets.comparisons])
    return 1 - float(differ.float().mean())


def update_stats(
    trajectories: Sequence[Trajectory],
    targets: Targets,
    sums: UpdateSums,
    *,
    update_s: float,
    lr: float,
) -> UpdateStats:
    """Figures of an update, without those of its rollout."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns if turn.is_trained]
    decisions = sum(len(turn.decision_logprobs) for turn in turns)
    mean_return = math.nan
    return_std = math.nan
    own = [trajectory for trajectory in trajectories if trajectory.is_own]
    returns = [trajectory.episode_return for trajectory in own]
    if returns:
        mean_return = sum(returns) / len(returns)
        return_std = float(torch.tensor(returns).std(unbiased=False))
    trained = targets.trained
    return UpdateStats(
        mean_return=mean_return,
        return_std=return_std,
        design_effect=design_effect(returns, [trajectory.group for trajectory in own]),
        policy_loss=float(sums.policy_loss) / max(sums.turns, 1),
        value_loss=float(sums.value_loss) / max(sums.turns, 1),
        approx_kl=sums.kl_of_decision,
        kl_ref=float(targets.kl_ref.sum()) / max(decisions, 1),
        entropy=float(sums.entropy) / max(sums.decisions, 1),
        action_entropy=float(sums.action_entropy) / max(sums.branches, 1),
        clip_fraction=float(sums.clipped) / max(sums.decisions, 1),
        flat_groups=flat_groups(targets),
        explained_variance=explained_variance(targets.values[trained], targets.returns[trained]),
        first_ratio=float(sums.first_ratio),
        grad_norm=float(sum(sums.grad_norms)) / max(len(sums.grad_norms), 1),
        parse_failure_rate=sum(turn.parse_failed for turn in turns) / max(len(turns), 1),
        refusal_rate=sum(turn.refused for turn in turns) / max(len(turns), 1),
        episodes=sum(not trajectory.goes_on for trajectory in trajectories),
        turns=len(turns),
        skipped_steps=sums.skipped,
        update_s=update_s,
        lr=lr,
    )


class Earned(NamedTuple):
    """The targets of a turn."""

    value: float | None
    """As estimated by the weights that sampled. None: there was no critic."""
    target: float
    """The return that the value is drawn to; without a critic, that the advantage comes from."""
    advantage: float
    """As the learner has it."""


class Peers(NamedTuple):
    """The group that a turn, or its episode, was compared with."""

    peers: str
    """Their kind, for people."""
    size: int
    outcome: float
    """The number of the turn, or of its episode, that was compared."""
    mean: float
    spread: float


@dataclass(frozen=True, slots=True, eq=False)
class UsedBatch:
    """The batch of an update, by reference."""

    trajectories: Sequence[Trajectory]
    targets: Targets
    config: PPOConfig
    temperature: float
    """Of sampling and scoring."""

    def earned(self, trajectory: Trajectory, number: int) -> Earned:
        """Value, return and advantage of a turn, in the update.

        Args:
            trajectory: one of the batch, the same object.
            number: index of the turn in it.
        Raises:
            ValueError: it is not of this batch.
        """
        turn = self._place(trajectory, number)
        return Earned(
            value=float(self.targets.values[turn]) if self.config.has_critic else None,
            target=float(self.targets.returns[turn]),
            advantage=float(self.targets.advantages[turn]),
        )

    def peers(self, trajectory: Trajectory, number: int) -> list[Peers]:
        """The group of a turn in every comparison; arguments and errors are those of `earned`."""
        turn = self._place(trajectory, number)
        found = []
        for each in self.targets.comparisons:
            group = int(each.groups[turn])
            if group >= 0:
                found.append(
                    Peers(
                        peers=each.peers,
                        size=int(each.sizes[group]),
                        outcome=float(each.outcomes[turn]),
                        mean=float(each.means[group]),
                        spread=float(each.spreads[group]),
                    )
                )
        return found

    def _place(self, trajectory: Trajectory, number: int) -> int:
        """Index of a turn in the batch; raises ValueError as `earned`."""
        first = 0
        for other in self.trajectories:
            if other is trajectory and number < len(other.turns):
                return first + number
            first += len(other.turns)
        raise ValueError("no turn of this batch")


def is_clipped(ratio: float, advantage: float, clip_range: float) -> bool:
    """True if PPO's surrogate takes its clipped side, so that a decision has no gradient.

    Args:
        ratio: of the probabilities, new over old.
        advantage: of the decision; a ratio that has moved against its sign is not clipped.
        clip_range: bound on the ratio's distance from 1.
    Source: arXiv:1707.06347, eq. 7.
    """
    clipped = min(max(ratio, 1 - clip_range), 1 + clip_range)
    return clipped * advantage < ratio * advantage
