"""The figures of an update: sums while it runs, means at its end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.config import UpdateStats
from llamagym_tui.engine.learning.losses import PolicyLoss, deviation_k3
from llamagym_tui.engine.learning.targets import Targets, explained_variance
from llamagym_tui.engine.policy.decisions import Decisions
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.ranks import Ranks


class Made(NamedTuple):
    """The steps of an update."""

    sums: "UpdateSums"
    lr: float


@dataclass(slots=True)
class UpdateSums:
    """Sums over decisions, turns, branches and steps; what forwards give stays on their device until it is read."""

    policy_loss: Tensor | float = 0.0
    value_loss: Tensor | float = 0.0
    approx_kl: Tensor | float = 0.0
    clipped: Tensor | float = 0.0
    """Decisions whose ratio lies outside the clip range."""
    entropy: Tensor | float = 0.0
    action_entropy: Tensor | float = 0.0
    first_ratio: Tensor | float = 0.0
    """Largest |ratio - 1| before the first step."""
    decisions: int = 0
    turns: int = 0
    branches: int = 0
    """Places where admissible replies part."""
    grad_norms: list[Tensor | float] = field(default_factory=list)
    """The policy's, of each step that was made, before clipping."""
    skipped: int = 0
    """Steps that were not made."""
    log_ratios: list[Tensor] = field(default_factory=list)
    """For each forward of this epoch: (D,) log-ratios of its decisions, new over old."""

    @property
    def kl_of_epoch(self) -> float:
        """Mean KL over the decisions of this epoch so far, nats."""
        if not self.log_ratios:
            return 0.0
        return float(deviation_k3(torch.cat(self.log_ratios)).mean())

    def of_all(self, ranks: Ranks) -> "UpdateSums":
        """The sums of all ranks."""
        total = UpdateSums()
        for part in ranks.gather(self):
            total.include(part)
        total.skipped = self.skipped  # all ranks make the same steps, so there is nothing to add
        return total

    def include(self, part: "UpdateSums") -> None:
        """Add those of another part of the batch."""
        self.policy_loss += part.policy_loss
        self.value_loss += part.value_loss
        self.approx_kl += part.approx_kl
        self.clipped += part.clipped
        self.entropy += part.entropy
        self.action_entropy += part.action_entropy
        # Unlike that of max(), torch's maximum keeps a NaN.
        self.first_ratio = torch.maximum(
            torch.as_tensor(self.first_ratio), torch.as_tensor(part.first_ratio)
        )
        self.decisions += part.decisions
        self.turns += part.turns
        self.branches += part.branches
        self.grad_norms += part.grad_norms
        self.skipped += part.skipped
        self.log_ratios += part.log_ratios

    def begin_epoch(self) -> None:
        """Forget what is of the epoch before alone."""
        self.log_ratios = []

    @torch.no_grad()
    def add(
        self, policy: PolicyLoss, critic: Tensor, scored: Decisions, turns: int, *, is_first: bool
    ) -> None:
        """Count one forward: `critic` is its value loss, `turns` its trained turns, `is_first` if no step was made."""
        self.policy_loss += policy.loss
        self.value_loss += critic
        self.approx_kl += policy.approx_kl
        self.clipped += policy.clipped
        self.entropy += scored.entropy.sum()
        self.action_entropy += scored.action_entropy.sum()
        self.decisions += len(scored.logprobs)
        self.turns += turns
        self.branches += len(scored.action_entropy)
        if is_first:
            # Unlike max(), clamp keeps a NaN.
            self.first_ratio = policy.largest_deviation.clamp(min=self.first_ratio)


def design_effect(returns: Sequence[float], seeds: Sequence[int | None]) -> float:
    """How many times the variance of a mean return is what it would be if no two episodes had the same seed.

    The variance is that of clusters: of the sums, seed by seed, of what returns are above their mean. At least 1, as
    episodes of one seed have at most as much to say as others; of a single seed all say what one does.

    Args:
        returns: N, of episodes.
        seeds: N, the same number where episodes were reset to the same seed. None: to one of its own.
    Source: Kish, Survey Sampling (1965), section 5.4.
    """
    count = len(returns)
    if count < 2 or all(seed is None for seed in seeds):
        return 1.0
    mean = sum(returns) / count
    sums: dict[tuple[str, int], float] = {}
    for number, (value, seed) in enumerate(zip(returns, seeds, strict=True)):
        cluster = ("alone", number) if seed is None else ("seed", seed)
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    if len(sums) == 1:
        return float(count)
    variance = sum((value - mean) ** 2 for value in returns) / (count - 1)
    if not variance:
        return 1.0
    of_clusters = sum(value**2 for value in sums.values()) / (len(sums) - 1)
    return max(1.0, of_clusters * len(sums) / count / variance)


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
        approx_kl=float(sums.approx_kl) / max(sums.decisions, 1),
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
