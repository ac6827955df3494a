"""What a value and an advantage belong to: a turn, or each token of its reply.

Either way an episode is a row of steps. Discount and lambda apply at the end of a turn and are 1 inside a reply: only
there the environment moves, `gamma` and `lam` mean the same under both, and long replies are not punished. A turn that
someone else chose stays one step, without loss. K turns and D decisions of a batch; T steps, which are either.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.policy.trajectory import Turn


class Steps(NamedTuple):
    """A batch as generalised advantage estimation sees it, its episodes one after the other."""

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
    each = torch.tensor(lengths, dtype=torch.int64)
    lasts, moves = (
        each.cumsum(0) - 1,
        torch.tensor([turn.steps for turn in turns], dtype=torch.int64),
    )
    return Steps(
        torch.zeros(len(values)).index_copy(0, lasts, rewards) - penalties,
        values,
        torch.zeros(len(values), dtype=torch.int64).index_copy(0, lasts, moves),
        torch.tensor([turn.is_trained for turn in turns], dtype=torch.bool).repeat_interleave(each),
        (1.0 / each).repeat_interleave(each),
    )


def turn_sums(turns: Sequence[Turn], values: Tensor) -> Tensor:
    """(K,) sums of (D,) values over the decisions of each turn."""
    lengths = torch.tensor([len(turn.decision_logprobs) for turn in turns])
    return torch.zeros(len(turns)).index_add_(
        0, torch.arange(len(turns)).repeat_interleave(lengths), values
    )
