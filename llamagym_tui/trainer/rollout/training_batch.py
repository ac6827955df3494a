"""The training batch under way: its episodes that have ended, and whether it needs more of them."""

from collections import deque
from collections.abc import Sequence

from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.protocol.events import Stage

FEWEST_TOGETHER = 16
"""Environments that are stepped together even if fewer would fill the batch; long episodes make it larger then."""
REMEMBERED = 64
"""Watched episodes of inference mode that can be recalled after their end."""


class BatchUnderWay:
    """The episodes of the next update, while they are played."""

    def __init__(self, typical_length: float) -> None:
        """An empty batch; `typical_length` is a first guess."""
        self.trajectories: list[Trajectory] = []
        """The episodes that have ended."""
        self.turns = 0
        """The policy's own turns in them."""
        self.typical_length = typical_length
        """The number of turns that an episode has, about: how many to start for a batch follows from it."""
        self.untrained: deque[Trajectory] = deque(maxlen=REMEMBERED)
        """Episodes that are in no batch, to be recalled for a while."""

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        self.trajectories += trajectories
        self.turns += sum(each.own_turns for each in trajectories)

    def take(self) -> list[Trajectory]:
        """Its episodes; the next batch begins empty."""
        taken = self.trajectories
        self.trajectories = []
        self.turns = 0
        return taken

    def missing(self, turns: int, under_way: Sequence[int], most: int) -> int:
        """How many episodes are to begin for a batch of so many turns; `under_way` has lengths so far."""
        fewest = FEWEST_TOGETHER - len(under_way) if self.turns < turns else 0
        # Turns that the episodes under way will have, about; each has at least one more.
        expected = sum(max(length + 1, self.typical_length) for length in under_way)
        missing = 0
        while missing < most and (missing < fewest or self.turns + expected < turns):
            expected += max(1, self.typical_length)
            missing += 1
        return missing

    def recall(self, episode: int) -> tuple[Trajectory, Stage] | None:
        """An episode that ended and is in no update yet; None: not kept."""
        for trajectory in self.trajectories:
            if trajectory.episode == episode:
                return trajectory, "waiting"
        for trajectory in self.untrained:
            if trajectory.episode == episode:
                return trajectory, "inference"
        return None
