"""A batch as steps, each with a reward and, where there is a critic, a value: turns, or the tokens of their replies.

Notation: K turns of a batch; T its steps, which are turns or decisions, episode after episode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.policy.trajectory import Turn


class Steps(NamedTuple):
    """The steps of a batch, its episodes one after the other.

    Discount and lambda apply at the end of a turn and are 1 inside a reply: only there the environment moves, `gamma`
    and `lam` mean the same under both kinds of credit, and long replies are not punished. A turn that someone else
    chose stays one step, without loss.
    """

    rewards: Tensor
    """(T,) less all penalties."""
    values: Tensor
    """(T,) before each step."""
    moves: Tensor
    """(T,) environment steps after it, each discounted by `gamma`; 0 inside a reply, where `lam` is 1, too."""
    trained: Tensor
    """(T,) bool: whether the policy made it."""
    weights: Tensor
    """(T,) of its error in the value loss; those of a turn sum to 1."""
    charges: Tensor
    """(T,) of the penalties, that for the KL to the reference, less a bonus for what is seldom tried: what a turn pays
    by itself where its episode is compared with others."""


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
        penalties: (T,) for the KL, subtracted from the reward of each step.
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
        charges=penalties,
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as an estimator of advantages sees it: T steps in E episodes."""

    steps: Steps
    lengths: Sequence[int]
    """(E,) steps of each."""
    bootstraps: Sequence[float]
    """(E,) value after each: V(final observation) if it was truncated and there is a critic, else 0."""
    seeds: Sequence[int | None]
    """(E,) the same number where episodes were reset to the same seed. None: nothing is known of it."""
    is_own: Sequence[bool]
    """(E,) whether the policy chose every turn."""
    observations: Sequence[int]
    """(T,) the same number where steps have the same observation; empty where no step is compared by it."""

    def by_step(self, of_episodes: Tensor) -> Tensor:
        """(T,) of each step, what its episode has of (E,)."""
        return of_episodes.repeat_interleave(torch.tensor(self.lengths, dtype=torch.int64))
