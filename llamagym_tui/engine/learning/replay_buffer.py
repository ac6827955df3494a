"""The replay buffer: recent successful episodes, whose replies an update imitates in addition to PPO's own loss.

What is kept are trajectories as they were sampled, so ids and masks are exact and nothing is encoded again. Equal
episodes count once, or the one path that succeeds most often would displace all others. The buffer is in the
checkpoints; after a roll back it begins empty.
"""

import random
from collections.abc import Iterable
from itertools import accumulate

from llamagym_tui.engine.learning.batch import Row, batch_rows
from llamagym_tui.engine.policy.trajectory import Trajectory

Key = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class ReplayBuffer:
    def __init__(self) -> None:
        self.kept: dict[Key, Trajectory] = {}
        """Oldest first."""

    def __len__(self) -> int:
        return len(self.kept)

    def add(self, trajectories: Iterable[Trajectory], *, min_return: float, size: int) -> None:
        """Add the successes of a batch; the oldest make room.

        Args:
            trajectories: the batch. It is no success of the policy's if someone else chose a turn, or if the fallback
                action replaced a reply that named none.
            min_return: of the environment, undiscounted, from which on an episode is a success.
            size: episodes kept at most; 0 empties the buffer.
        """
        for trajectory in trajectories:
            is_example = all(turn.is_trained and not turn.parse_failed for turn in trajectory.turns)
            if is_example and trajectory.episode_return >= min_return:
                key = _key(trajectory)
                self.kept.pop(key, None)  # so that it is among the newest again
                self.kept[key] = trajectory
        for key in list(self.kept)[: max(0, len(self.kept) - size)]:
            del self.kept[key]

    def restore(self, kept: Iterable[Trajectory]) -> None:
        """Hold these episodes, and no others."""
        self.kept = {_key(trajectory): trajectory for trajectory in kept}

    def parts(self, count: int, turns: int, rng: random.Random) -> list[list[Row]]:
        """Rows in random order, in `count` parts of about equal size; with fewer rows than parts, some are empty.

        Args:
            count: parts.
            turns: of a part at most (one row may have more), so that a large buffer does not make an update long.
            rng: of the order.
        """
        rows = batch_rows(list(self.kept.values()))
        rng.shuffle(rows)
        return [_up_to(rows[at::count], turns) for at in range(count)]


def _key(trajectory: Trajectory) -> Key:
    """Equal for episodes with the same observations and replies, from which the same would be learnt."""
    return tuple((segment.prefix, tuple(segment.ids)) for segment in trajectory.segments)


def _up_to(rows: list[Row], turns: int) -> list[Row]:
    """The first rows, of `turns` turns in all; at least one row."""
    ends = accumulate(len(row.segment.turns) for row in rows)
    return [row for at, (row, end) in enumerate(zip(rows, ends, strict=True)) if end <= turns or at == 0]
