"""PPO's losses: pure functions, and `Objective`, which adds them up for a part of a batch.

They are sums over turns; whoever makes a step divides by the number of its turns. Notation: N tokens, U turns or tokens
with a value, D decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from llamagym_tui.engine.policy.decisions import Decisions
from llamagym_tui.engine.ranks import Ranks
from llamagym_tui.settings import PPOConfig

if TYPE_CHECKING:
    from llamagym_tui.engine.learning.packing import PackedRows
    from llamagym_tui.engine.learning.targets import Targets
    from llamagym_tui.engine.model.forward import Encoded


class PolicyLoss(NamedTuple):
    """The clipped surrogate, and figures that show how far the policy has moved."""

    loss: Tensor
    """() sum over tokens."""
    approx_kl: Tensor
    """() sum over tokens of the k3 estimate between old and new policy, nats."""
    clipped: Tensor
    """() tokens whose ratio lies outside the clip range."""
    largest_deviation: Tensor
    """() largest |ratio - 1|."""


def clipped_policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_range: float
) -> PolicyLoss:
    """PPO's clipped surrogate, summed over tokens.

    Args:
        logprobs: (N,) under the policy being trained.
        old_logprobs: (N,) when sampled.
        advantages: (N,) of the turn that each token belongs to.
        clip_range: bound on the ratio's distance from 1.
    Source: arXiv:1707.06347, eq. 7; k3: joschu.net/blog/kl-approx.html.
    """
    log_ratio = logprobs - old_logprobs
    ratio = log_ratio.exp()
    # L = -min(r A, clip(r, 1 - eps, 1 + eps) A)
    surrogate = torch.minimum(
        ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages
    )
    loss = -surrogate.sum()
    with torch.no_grad():
        deviation = (ratio - 1).abs()
        return PolicyLoss(
            loss=loss,
            approx_kl=deviation_k3(log_ratio).sum(),
            clipped=(deviation > clip_range).float().sum(),
            largest_deviation=deviation.max(),
        )


def deviation_k3(log_ratio: Tensor) -> Tensor:
    """k3 estimate of KL(old || new) from log(new/old) at samples of old: (r - 1) - log r, never negative."""
    return log_ratio.exp() - 1 - log_ratio


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """() half the squared error, summed; (U,) each."""
    return 0.5 * (values - returns).square().sum()


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

    @property
    def kl_of_decision(self) -> float:
        """Mean KL over the decisions, nats."""
        return float(self.approx_kl) / max(self.decisions, 1)

    def of_all(self, ranks: Ranks) -> UpdateSums:
        """The sums of all ranks."""
        total = UpdateSums()
        for part in ranks.gather(self):
            total.include(part)
        total.skipped = self.skipped  # all ranks make the same steps, so there is nothing to add
        return total

    def include(self, part: UpdateSums) -> None:
        """Add those of another part of the batch."""
        for each in fields(self):
            own = getattr(self, each.name)
            other = getattr(part, each.name)
            if each.name == "first_ratio":
                # Unlike that of max(), torch's maximum keeps a NaN.
                setattr(self, each.name, torch.maximum(*map(torch.as_tensor, (own, other))))
            else:
                setattr(self, each.name, own + other)

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


class Made(NamedTuple):
    """The steps of an update."""

    sums: UpdateSums
    lr: float
    has_moved: bool
    """True if a step has changed a weight of the policy."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss of one update."""

    config: PPOConfig
    targets: Targets
    v_head: nn.Module
    temperature: float
    entropy_coef: float
    is_warming_up: bool
    """True while the critic alone is trained."""

    def loss(
        self, part: PackedRows, encoded: Encoded, sums: UpdateSums, *, is_first: bool
    ) -> Tensor:
        """() sum over a part's turns of policy, value and entropy loss.

        Args:
            part: of the batch.
            encoded: what the present weights say of it, with gradients.
            sums: the figures are added to them.
            is_first: True before the first step of the update.
        """
        scored = part.score(encoded, self.temperature)
        # The first ratio is 1 up to rounding: sampling and scoring have the same temperature, no truncation, no
        # dropout. `first_ratio` in the figures shows it.
        policy = clipped_policy_loss(
            scored.logprobs,
            part.old_logprobs,
            self.targets.advantages[part.decision_turns],
            self.config.clip_range,
        )
        critic = self._critic_loss(part, encoded)
        loss = critic
        if not self.is_warming_up:
            loss = loss + policy.loss - self.entropy_coef * scored.action_entropy.sum()
        sums.add(policy, critic, scored, len(part.turns.indices), is_first=is_first)
        return loss

    def _critic_loss(self, part: PackedRows, encoded: Encoded) -> Tensor:
        """() half the squared error of the values, summed over turns; 0 without a critic."""
        if not self.config.has_critic:
            return self.targets.returns.new_zeros(())
        turns = part.turns
        hidden = encoded.hidden[turns.rows, turns.columns]  # (U, D)
        # The value head gets the full gradient of its error. The trunk, which the policy shares, gets it times
        # `value_coef`, and none while the critic warms up.
        coef = 0.0 if self.is_warming_up else self.config.value_coef
        seen = hidden.detach()
        if coef:
            seen = coef * hidden + (1 - coef) * seen
        return value_loss(self.v_head(seen), self.targets.returns[turns.indices])
