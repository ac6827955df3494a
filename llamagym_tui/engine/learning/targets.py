"""The targets of an update: from the rewards of a batch to advantages, returns and the KL to the reference.

Pure arithmetic over what was sampled and what the models computed of it; the learner runs the models. Rewards and
penalties become steps, and an estimator finds their advantages (`estimators`).

Notation: T turns of a batch, episode after episode; D decisions, which are sampled tokens or chosen replies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llamagym_tui.engine.learning.estimators import ESTIMATORS, Batch, Comparison
from llamagym_tui.engine.learning.rewards import turn_rewards
from llamagym_tui.engine.policy.trajectory import Trajectory, Turn
from llamagym_tui.settings import PPOConfig


@dataclass(frozen=True, slots=True)
class Targets:
    """Fixed before the first optimizer step, and used in all epochs of the update."""

    advantages: Tensor
    """(T,) as the estimator has them."""
    returns: Tensor
    """(T,) what values should have been; without a critic, what the advantages come from."""
    values: Tensor
    """(T,) as estimated by the weights that sampled."""
    trained: Tensor
    """(T,) bool."""
    kl_ref: Tensor
    """(T,) nats that each turn is away from the reference (k1)."""
    comparisons: tuple[Comparison, ...] = ()
    """Where steps were compared with others of their group; on the processor's side."""


def batch_targets(
    trajectories: Sequence[Trajectory],
    config: PPOConfig,
    *,
    reference_logprobs: Tensor | None,
    bootstraps: Sequence[float],
    bonuses: Tensor | None,
    reward_scale: float,
    kl_coef: float,
    device: torch.device,
) -> Targets:
    """Targets of a batch, its turns and decisions in order, from what the models say before the first step.

    Args:
        reference_logprobs: (D,) of decisions under the reference. None: there is none.
        bonuses: (T,) of each turn for what is seldom tried. None: there are none.
        bootstraps: value after each episode: V(final observation) if it was truncated, else 0.
    Raises:
        ValueError: without a critic, an episode was cut off before its end.
    """
    if not config.has_critic and any(each.goes_on or each.earlier for each in trajectories):
        raise ValueError(
            f"The learner {config.learner} needs whole episodes, and one was cut off for an update."
        )
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    # 1. How far the policy has gone from the reference, in nats: the k1 estimate, which may be negative for a token,
    #    but is unbiased as a part of the reward.
    old = torch.tensor([logprob for turn in turns for logprob in turn.decision_logprobs])  # (D,)
    kl = torch.zeros_like(old) if reference_logprobs is None else old - reference_logprobs.cpu()
    kl_ref = turn_sums(turns, kl)
    # 2. The reward of each turn.
    rewards = turn_rewards(turns, scale=reward_scale, parse_penalty=config.parse_penalty)
    if bonuses is not None:
        rewards = rewards + config.novelty_coef * bonuses
    charges = kl_coef * kl_ref
    rewards = rewards - charges
    if bonuses is not None and not config.has_critic:
        charges = charges - config.novelty_coef * bonuses
    # 3. Advantages.
    values = torch.tensor([turn.value for turn in turns])
    trained = torch.tensor([turn.is_trained for turn in turns], dtype=torch.bool)
    batch = Batch(
        rewards=rewards,
        values=values,
        moves=torch.tensor([turn.steps for turn in turns], dtype=torch.int64),
        trained=trained,
        charges=charges,
        lengths=[len(trajectory.turns) for trajectory in trajectories],
        bootstraps=bootstraps,
        seeds=[trajectory.group for trajectory in trajectories],
        observations=[turn.observation for turn in turns],
    )
    found = ESTIMATORS[config.learner](batch, config)
    return Targets(
        advantages=found.advantages.to(device),
        returns=found.returns.to(device),
        values=values.to(device),
        trained=trained.to(device),
        kl_ref=kl_ref,
        comparisons=found.comparisons,
    )


def turn_sums(turns: Sequence[Turn], values: Tensor) -> Tensor:
    """(T,) sums of (D,) values over the decisions of each turn."""
    lengths = torch.tensor([len(turn.decision_logprobs) for turn in turns])
    owners = torch.arange(len(turns)).repeat_interleave(lengths)  # (D,) the turn of each decision
    sums = torch.zeros(len(turns), device=values.device)
    return sums.index_add_(0, owners.to(values.device), values)


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns); 0 where returns do not vary. (T,) each."""
    variance = returns.var(unbiased=False)
    if len(returns) < 2 or float(variance) < 1e-12:
        return 0.0
    return float(1 - (returns - values).var(unbiased=False) / variance)
