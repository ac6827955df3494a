"""What an update aims at: from the rewards of a batch to advantages, returns and the KL to the reference.

Pure arithmetic over what was sampled and what the models computed of it; the learner runs the models. It goes in three
steps. Rewards and penalties become steps, each with a value of its own: a turn, or each token of its reply (`credit`).
Generalised advantage estimation goes through the steps of each episode, from the last to the first. And advantages are
whitened over the batch.

Notation: K turns and D decisions of a batch; T its steps, which are turns or decisions, episode after episode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.rewards import turn_rewards
from llamagym_tui.engine.policy.trajectory import Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Targets:
    """Fixed before the first optimizer step, and used in all epochs of the update."""

    advantages: Tensor
    """(T,) whitened if configured."""
    returns: Tensor
    """(T,) what values should have been."""
    values: Tensor
    """(T,) as estimated by the weights that sampled."""
    value_weights: Tensor
    """(T,) in the value loss; those of a turn sum to 1."""
    trained: Tensor
    """(T,) bool."""
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
    bonuses: Tensor | None,
    reward_scale: float,
    kl_coef: float,
    device: torch.device,
) -> Targets:
    """Targets of a batch, its turns and decisions in order, from what the models say before the first step.

    Args:
        reference_logprobs: (D,) of decisions under the reference. None: there is none.
        decision_values: (D,) V before each decision. None: turns alone have values.
        bonuses: (K,) of each turn for what is seldom tried. None: there are none.
        bootstraps: value after each episode: V(final observation) if it was truncated, else 0.
    """
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    # 1. How far the policy has gone from the reference, in nats: the k1 estimate, which may be negative for a token,
    #    but is unbiased as a part of the reward.
    old = torch.tensor([logprob for turn in turns for logprob in turn.decision_logprobs])  # (D,)
    kl = torch.zeros_like(old) if reference_logprobs is None else old - reference_logprobs.cpu()
    kl_ref = turn_sums(turns, kl)
    # 2. What each turn has earned, and the steps that have a value of their own: turns, or their decisions.
    if decision_values is None:
        lengths = [1] * len(turns)
        penalties = kl_ref
        values = torch.tensor([turn.value for turn in turns])
    else:
        lengths = [len(turn.decision_logprobs) for turn in turns]
        penalties = kl
        values = decision_values
    rewards = turn_rewards(turns, scale=reward_scale, parse_penalty=config.parse_penalty)
    if bonuses is not None:
        rewards = rewards + config.novelty_coef * bonuses
    charged = kl_coef if config.kl_form == "reward" else 0.0
    steps = credited_steps(turns, lengths, rewards, charged * penalties, values)
    episode_lengths = []
    first = 0
    for trajectory in trajectories:
        after_last = first + len(trajectory.turns)
        episode_lengths.append(sum(lengths[first:after_last]))
        first = after_last
    # 3. Advantages, episode by episode. They are whitened over the batch and not over the minibatch, so that an
    #    advantage does not depend on what it happens to be drawn with.
    found = batch_advantages(
        steps.rewards,
        steps.values,
        steps.moves,
        episode_lengths,
        bootstraps,
        gamma=config.gamma,
        lam=config.lam,
        trained=steps.trained,
    )
    advantages = found.advantages
    if config.whiten_advantages:
        advantages = whiten(advantages, steps.trained)
    return Targets(
        advantages=advantages.to(device),
        returns=found.returns.to(device),
        values=steps.values.to(device),
        value_weights=steps.weights.to(device),
        trained=steps.trained.to(device),
        kl_ref=kl_ref,
        reference_logprobs=reference_logprobs,
    )


class Steps(NamedTuple):
    """A batch as generalised advantage estimation sees it, its episodes one after the other.

    Discount and lambda apply at the end of a turn and are 1 inside a reply: only there the environment moves, `gamma`
    and `lam` mean the same under both kinds of credit, and long replies are not punished. A turn that someone else
    chose stays one step, without loss.
    """

    rewards: Tensor
    """(T,) with all penalties."""
    values: Tensor
    """(T,) before each step."""
    moves: Tensor
    """(T,) environment steps after it, each discounted by `gamma`; 0 inside a reply, where `lam` is 1, too."""
    trained: Tensor
    """(T,) bool: whether the policy made it."""
    weights: Tensor
    """(T,) of its error in the value loss; those of a turn sum to 1."""


def credited_steps(
    turns: Sequence[Turn],
    lengths: Sequence[int],
    rewards: Tensor,
    penalties: Tensor,
    values: Tensor,
) -> Steps:
    """Each turn as a step, or each of its decisions; the reward of a turn lands on its last one.

    Discount and lambda of 1 inside a reply are those of the dual discounting of WentseChen/Verlog.

    Args:
        turns: K, in order.
        lengths: steps of each.
        rewards: (K,) of turns.
        penalties: (T,) subtracted from the reward of each step.
        values: (T,) before each step.
    """
    steps_of_turns = torch.tensor(lengths, dtype=torch.int64)  # (K,)
    last_steps = steps_of_turns.cumsum(0) - 1  # (K,) index of each turn's last step
    turn_moves = torch.tensor([turn.steps for turn in turns], dtype=torch.int64)  # (K,)
    is_trained = torch.tensor([turn.is_trained for turn in turns], dtype=torch.bool)  # (K,)
    earned = torch.zeros(len(values)).index_copy(0, last_steps, rewards)  # (T,) 0 inside a reply
    moves = torch.zeros(len(values), dtype=torch.int64).index_copy(0, last_steps, turn_moves)
    return Steps(
        rewards=earned - penalties,
        values=values,
        moves=moves,
        trained=is_trained.repeat_interleave(steps_of_turns),
        weights=(1.0 / steps_of_turns).repeat_interleave(steps_of_turns),
    )


def turn_sums(turns: Sequence[Turn], values: Tensor) -> Tensor:
    """(K,) sums of (D,) values over the decisions of each turn."""
    lengths = torch.tensor([len(turn.decision_logprobs) for turn in turns])
    owners = torch.arange(len(turns)).repeat_interleave(lengths)  # (D,) the turn of each decision
    return torch.zeros(len(turns)).index_add_(0, owners, values)


class Advantages(NamedTuple):
    """What generalised advantage estimation gives."""

    advantages: Tensor
    """(T,) not normalised."""
    returns: Tensor
    """(T,) advantages + values: the value head's targets."""


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
) -> Advantages:
    """Generalised advantage estimates of episodes that stand one after the other; none leaks into the one before.

    What someone else did is no merit of the policy's: the trace is cut at such a step, so the steps before it are
    credited by its value alone. That is V-trace with a ratio of 0 where the policy did not act.

    Args:
        rewards: (T,) reward of each step.
        values: (T,) value before each step.
        moves: (T,) environment steps after each, which `gamma` discounts; after one with 0, `lam` is 1, too.
        lengths: steps of each episode.
        bootstraps: value after each episode; 0 if it terminated, V(final observation) if it was truncated.
        gamma: discount per environment step: with actions that take several, a semi-Markov decision process.
        lam: lambda per turn.
        trained: (T,) bool: the steps that the policy made. None: all.
    Raises:
        ValueError: `rewards`, `values` and `lengths` are not of as many steps.
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
            trace = lam if moved else 1.0
            delta = reward + discount * following_value - value
            following_advantage = delta + discount * trace * following_advantage
            found.append(following_advantage)
            following_value = value
            if not is_own:
                following_advantage = 0.0
    advantages = torch.tensor(found[::-1], dtype=values.dtype)
    return Advantages(advantages=advantages, returns=advantages + values)


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-6) -> Tensor:
    """(T,) advantages of a batch with mean 0 and standard deviation 1 over the (T,) mask of trained steps."""
    # Steps of someone else are left out: they have no loss, so they must not shift or scale those that have.
    kept = advantages[mask]
    if len(kept) < 2:
        return advantages
    return (advantages - kept.mean()) / (kept.std(unbiased=False) + eps)


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns); 0 where returns do not vary. (T,) each."""
    variance = returns.var(unbiased=False)
    if len(returns) < 2 or float(variance) < 1e-12:
        return 0.0
    return float(1 - (returns - values).var(unbiased=False) / variance)
