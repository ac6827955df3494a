"""What an update aims at: from the rewards of a batch to advantages, returns and the KL to the reference.

Pure arithmetic over what was sampled and what the models computed of it; `ppo` runs the models. K turns and D decisions
of a batch; U of these two what has a value of its own, by `credit`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.advantages import batch_advantages, whiten
from llamagym_tui.engine.learning.credit import credited_steps, turn_sums
from llamagym_tui.engine.learning.rewards import turn_rewards
from llamagym_tui.engine.policy.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Targets:
    advantages: Tensor
    """(U,) whitened if configured."""
    returns: Tensor
    """(U,)."""
    values: Tensor
    """(U,) as estimated by the weights that sampled."""
    value_weights: Tensor
    """(U,) in the value loss; those of a turn sum to 1."""
    trained: Tensor
    """(U,) bool."""
    kl_ref: Tensor
    """(K,) nats that each turn is away from the reference (k1)."""
    reference_logprobs: Tensor | None
    """(D,) of decisions under the reference; None: there is none."""


def batch_targets(
    trajectories: Sequence[Trajectory],
    config: PPOConfig,
    *,
    reference_logprobs: Tensor | None,
    decision_values: Tensor | None,
    bootstraps: Sequence[float],
    reward_scale: float,
    kl_coef: float,
    device: torch.device,
) -> Targets:
    """Targets of a batch, its turns and decisions in order, from what the models say before the first step.

    Args:
        reference_logprobs: (D,) of decisions under the reference. None: there is none.
        decision_values: (D,) V before each decision. None: turns alone have values.
        bootstraps: value after each episode: V(final observation) if it was truncated, else 0.
    """
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    # 1. How far the policy has gone from the reference, in nats: the k1 estimate, which may be negative for a token,
    #    but is unbiased as a part of the reward.
    old = torch.tensor([logprob for turn in turns for logprob in turn.decision_logprobs])
    kl = torch.zeros_like(old) if reference_logprobs is None else old - reference_logprobs.cpu()
    kl_ref = turn_sums(turns, kl)
    # 2. What each turn has earned, and the steps that have a value of their own.
    rewards = turn_rewards(turns, scale=reward_scale, parse_penalty=config.parse_penalty)
    charged = kl_coef if config.kl_form == "reward" else 0.0
    if decision_values is None:
        counts, penalties, values = (
            [1] * len(turns),
            kl_ref,
            torch.tensor([turn.value for turn in turns]),
        )
    else:
        counts, penalties, values = (
            [len(turn.decision_logprobs) for turn in turns],
            kl,
            decision_values,
        )
    steps, each = credited_steps(turns, counts, rewards, charged * penalties, values), iter(counts)
    lengths = [sum(islice(each, len(trajectory.turns))) for trajectory in trajectories]
    # 3. Advantages, episode by episode. They are whitened over the batch and not over the minibatch, so that an
    #    advantage does not depend on what it happens to be drawn with.
    found = batch_advantages(
        *steps[:3], lengths, bootstraps, gamma=config.gamma, lam=config.lam, trained=steps.trained
    )
    used = whiten(found.advantages, steps.trained) if config.whiten_advantages else found.advantages
    return Targets(
        advantages=used.to(device),
        returns=found.returns.to(device),
        values=steps.values.to(device),
        value_weights=steps.weights.to(device),
        trained=steps.trained.to(device),
        kl_ref=kl_ref,
        reference_logprobs=reference_logprobs,
    )
