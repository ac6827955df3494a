"""What an update used, kept by reference: nothing is computed again; and the episode that it moved most."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.config import LEARNERS, Credit, LearnerName, MovedEpisode
from llamagym_tui.engine.learning.distinguished import observation_ids
from llamagym_tui.engine.learning.targets import Targets, turn_sums
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer

MOST_TEXT = 160
"""Characters of an observation or reply that are kept."""


class Earned(NamedTuple):
    """What an update aims at for a decision; shared by the decisions of a turn if credit goes to turns."""

    value: float | None
    """As estimated by the weights that sampled. None: there was no critic."""
    target: float
    """The return that the value is drawn to; without a critic, that the advantage comes from."""
    advantage: float
    """As the learner has it."""


class Peers(NamedTuple):
    """The group that a turn, or its episode, was compared with."""

    peers: str
    """What they are, for people."""
    size: int
    outcome: float
    """What of it was compared."""
    mean: float
    spread: float


@dataclass(frozen=True, slots=True, eq=False)
class UsedBatch:
    """What an update trained on, by reference."""

    trajectories: Sequence[Trajectory]
    targets: Targets
    credit: Credit
    clip_range: float
    temperature: float
    """Under which the batch was sampled and scored."""
    learner: LearnerName
    """By which its advantages were estimated."""

    def earned(self, trajectory: Trajectory, number: int) -> list[Earned]:
        """Value, return and advantage of each decision of a turn, in the update.

        Args:
            trajectory: one of the batch, the same object.
            number: index of the turn in it.
        Raises:
            ValueError: it is not of this batch.
        """
        turns, decisions = self._place(trajectory, number)
        length = len(trajectory.turns[number].decision_logprobs)
        if self.credit == "turn":
            return [self._earned_at(turns)] * length
        return [self._earned_at(decisions + each) for each in range(length)]

    def peers(self, trajectory: Trajectory, number: int) -> list[Peers]:
        """What a turn was compared with, in every group that it was in; the arguments are those of `earned`.

        Raises:
            ValueError: it is not of this batch.
        """
        turn, _ = self._place(trajectory, number)
        found = []
        for each in self.targets.comparisons:
            group = int(each.groups[turn])
            if group >= 0:
                found.append(
                    Peers(
                        each.peers,
                        int(each.sizes[group]),
                        float(each.outcomes[turn]),
                        float(each.means[group]),
                        float(each.spreads[group]),
                    )
                )
        return found

    def _place(self, trajectory: Trajectory, number: int) -> tuple[int, int]:
        """Index in the batch of a turn, and of its first decision; raises ValueError as `earned`."""
        turns = 0
        decisions = 0
        for other in self.trajectories:
            for at, turn in enumerate(other.turns):
                if other is trajectory and at == number:
                    return turns, decisions
                turns += 1
                decisions += len(turn.decision_logprobs)
        raise ValueError("no turn of this batch")

    def _earned_at(self, unit: int) -> Earned:
        """What a turn or decision has, by its index in the batch."""
        return Earned(
            value=float(self.targets.values[unit]) if LEARNERS[self.learner].has_critic else None,
            target=float(self.targets.returns[unit]),
            advantage=float(self.targets.advantages[unit]),
        )


def is_clipped(ratio: float, advantage: float, clip_range: float) -> bool:
    """Whether PPO's surrogate takes its clipped side, so that a decision has no gradient.

    Args:
        ratio: of the probabilities, new over old.
        advantage: of the decision; a ratio that has moved against its sign is not clipped.
        clip_range: bound on the ratio's distance from 1.
    Source: arXiv:1707.06347, eq. 7.
    """
    clipped = min(max(ratio, 1 - clip_range), 1 + clip_range)
    return clipped * advantage < ratio * advantage


def moved_most(
    chat: ChatTokenizer, used: UsedBatch, log_ratios: Sequence[tuple[Tensor, Tensor]]
) -> MovedEpisode | None:
    """The episode of a batch whose probabilities an update has changed most.

    Args:
        chat: makes texts of ids.
        used: the batch.
        log_ratios: `UpdateSums.log_ratios`.
    Returns:
        None: nothing was moved, or not by a number.
    """
    turns = [turn for trajectory in used.trajectories for turn in trajectory.turns]
    lengths = [len(turn.decision_logprobs) for turn in turns]
    log_ratio = torch.zeros(sum(lengths))  # (D,) of all decisions, new over old
    for decisions, scored in log_ratios:
        log_ratio[decisions.cpu()] = scored.cpu()
    advantages = used.targets.advantages.cpu()
    if used.credit == "turn":
        advantages = advantages.repeat_interleave(torch.tensor(lengths))  # (D,)
    # A decision is moved by |advantage x (ratio - 1)|.
    by_turn = turn_sums(turns, (advantages * log_ratio.expm1()).abs()).tolist()
    by_episode: list[list[float]] = []
    first = 0
    for trajectory in used.trajectories:
        after_last = first + len(trajectory.turns)
        by_episode.append(by_turn[first:after_last])
        first = after_last
    sums = [sum(each) for each in by_episode]
    total = sum(sums)
    if not math.isfinite(total) or not total:
        return None
    episode = _largest(sums)
    number = _largest(by_episode[episode])
    trajectory = used.trajectories[episode]
    # The turn's index in the batch.
    at = sum(len(each.turns) for each in used.trajectories[:episode]) + number
    turn = turns[at]
    old = sum(turn.decision_logprobs)
    new = old + float(log_ratio.split(lengths)[at].sum())
    pairs = [
        (segment, ids) for segment in trajectory.segments for ids in observation_ids(chat, segment)
    ]
    segment, ids = pairs[number]
    reply_ids = segment.ids[turn.start : turn.end]
    return MovedEpisode(
        episode=trajectory.episode,
        episode_return=trajectory.episode_return,
        moved=sums[episode],
        of_batch=total,
        turn=len(trajectory.earlier) + number,
        observation=chat.text(_without_template_end(chat, ids)).strip()[:MOST_TEXT],
        reply=chat.reply(reply_ids)[:MOST_TEXT],
        advantage=float(advantages.split(lengths)[at].mean()),
        before=math.exp(old),
        after=math.exp(min(0.0, new)),
    )


def _largest(numbers: Sequence[float]) -> int:
    """Index of the largest number, the first if there are several."""
    return max(range(len(numbers)), key=numbers.__getitem__)


def _without_template_end(chat: ChatTokenizer, ids: Sequence[int]) -> Sequence[int]:
    """Ids of an observation without what the template writes after it, before the reply."""
    template = chat.continuation("", ended=True)
    same = 0
    for own, templates in zip(reversed(ids), reversed(template), strict=False):
        if own != templates:
            break
        same += 1
    return ids[: len(ids) - same]
