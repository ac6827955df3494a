"""What an update used, kept by reference: nothing is computed again; and the episode that it moved most."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llamagym_tui.config import Credit
from llamagym_tui.engine.learning.distinguished import observation_ids
from llamagym_tui.engine.learning.targets import Targets, turn_sums
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer


class Earned(NamedTuple):
    """What an update aims at for a decision; shared by the decisions of a turn if credit goes to turns."""

    value: float
    """As estimated by the weights that sampled."""
    target: float
    """The return that the value is drawn to."""
    advantage: float
    """Whitened, if configured."""


@dataclass(frozen=True, slots=True, eq=False)
class UsedBatch:
    """What an update trained on, by reference."""

    trajectories: Sequence[Trajectory]
    targets: Targets
    credit: Credit
    clip_range: float
    temperature: float
    """Under which the batch was sampled and scored."""

    def earned(self, trajectory: Trajectory, number: int) -> list[Earned]:
        """Of each decision of a turn: value, return and advantage in the update.

        Args:
            trajectory: one of the batch, the same object.
            number: index of the turn in it.
        Raises:
            ValueError: it is not of this batch.
        """
        turns = decisions = 0
        for other in self.trajectories:
            for at, turn in enumerate(other.turns):
                length = len(turn.decision_logprobs)
                if other is trajectory and at == number:
                    units = (
                        [turns] * length
                        if self.credit == "turn"
                        else range(decisions, decisions + length)
                    )
                    used = (self.targets.values, self.targets.returns, self.targets.advantages)
                    return [Earned(*(float(figures[unit]) for figures in used)) for unit in units]
                turns, decisions = turns + 1, decisions + length
        raise ValueError("no turn of this batch")


def is_clipped(ratio: float, advantage: float, clip_range: float) -> bool:
    """Whether PPO's surrogate takes its clipped side, so that a decision has no gradient.

    Args:
        ratio: of the probabilities, new over old.
        advantage: of the decision; a ratio that has moved against its sign is not clipped.
        clip_range: bound on the ratio's distance from 1.
    Source: arXiv:1707.06347, eq. 7.
    """
    return min(max(ratio, 1 - clip_range), 1 + clip_range) * advantage < ratio * advantage


def moved_most(
    chat: ChatTokenizer, used: UsedBatch, log_ratios: list[tuple[Tensor, Tensor]]
) -> dict[str, Any] | None:
    """The fields of a `MovedEpisode` event, by `UpdateSums.log_ratios`; None: nothing was moved, or not by a number."""
    turns = [turn for trajectory in used.trajectories for turn in trajectory.turns]
    lengths = [len(turn.decision_logprobs) for turn in turns]
    log_ratio, advantages = torch.zeros(sum(lengths)), used.targets.advantages.cpu()
    for decisions, scored in log_ratios:
        log_ratio[decisions.cpu()] = scored.cpu()
    if used.credit == "turn":
        advantages = advantages.repeat_interleave(torch.tensor(lengths))
    moved = iter(turn_sums(turns, (advantages * log_ratio.expm1()).abs()).tolist())
    by_turn = [[next(moved) for _ in trajectory.turns] for trajectory in used.trajectories]
    sums = [sum(each) for each in by_turn]
    if not math.isfinite(sum(sums)) or not sum(sums):
        return None
    most = max(range(len(sums)), key=sums.__getitem__)
    trajectory, number = (
        used.trajectories[most],
        max(range(len(by_turn[most])), key=by_turn[most].__getitem__),
    )
    first = sum(len(each.turns) for each in used.trajectories[:most]) + number
    turn, old = turns[first], sum(turns[first].decision_logprobs)
    pairs = [
        (segment, ids) for segment in trajectory.segments for ids in observation_ids(chat, segment)
    ]
    segment, ids = pairs[number]
    after_it = sum(
        takewhile(bool, map(eq, reversed(ids), reversed(chat.continuation("", ended=True))))
    )
    return {
        "episode": trajectory.episode,
        "episode_return": trajectory.episode_return,
        "moved": sums[most],
        "of_batch": sum(sums),
        "turn": len(trajectory.earlier) + number,
        "observation": chat.text(ids[: len(ids) - after_it]).strip()[:160],
        "reply": chat.text(segment.ids[turn.start : turn.end])[:160],
        "advantage": float(advantages.split(lengths)[first].mean()),
        "before": math.exp(old),
        "after": math.exp(min(0.0, old + float(log_ratio.split(lengths)[first].sum()))),
    }
