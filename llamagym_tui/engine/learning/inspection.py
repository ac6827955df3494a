"""What an update used, kept by reference for whoever looks at one of its replies; nothing is computed again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llamagym_tui.config import Credit
from llamagym_tui.engine.learning.targets import Targets
from llamagym_tui.engine.policy.trajectory import Trajectory


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

    update: int
    """Count from 1 since the run began."""
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
                    units = [turns] * length if self.credit == "turn" else range(decisions, decisions + length)
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
