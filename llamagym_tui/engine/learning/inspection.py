"""What an update used, kept by reference: nothing is computed again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llamagym_tui.engine.learning.targets import Targets
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.settings import LEARNERS, Credit, LearnerName


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
