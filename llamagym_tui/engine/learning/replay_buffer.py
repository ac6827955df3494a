"""The replay buffer: recent successful episodes, whose replies an update imitates beside PPO's own loss.

What is kept are trajectories as they were sampled, so ids and masks are exact and nothing is encoded again. Equal
episodes count once, or the one path that succeeds most often would displace all others. The buffer lives in memory
alone: it begins empty after a resume and after a roll back.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import accumulate

from llamagym_tui.engine.learning.batch import Row, batch_rows
from llamagym_tui.engine.policy.trajectory import Trajectory

Key = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class ReplayBuffer:
    """The newest different successes."""

    def __init__(self) -> None:
        """An empty buffer."""
        self._kept: dict[Key, Trajectory] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, trajectories: Iterable[Trajectory], *, min_return: float, size: int) -> None:
        """Take in the successes of a batch; the oldest make room.

        Args:
            trajectories: the batch; an episode in which someone else had a hand, or the fallback action stood in for
                a reply that named none, is no success of the policy's.
            min_return: of the environment, undiscounted, from which on an episode is a success.
            size: episodes kept at most; 0 empties the buffer.
        """
        for trajectory in trajectories:
            if _is_example(trajectory) and trajectory.episode_return >= min_return:
                key = _key(trajectory)
                self._kept.pop(key, None)  # so that it is among the newest again
                self._kept[key] = trajectory
        for key in list(self._kept)[: max(0, len(self._kept) - size)]:
            del self._kept[key]

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def parts(self, count: int, turns: int, rng: random.Random) -> list[list[Row]]:
        """Rows in random order, in so many parts of about equal size; with fewer rows than parts, some are empty.

        Args:
            count: parts.
            turns: of a part at most (one row may have more), so that a large buffer does not make an update long.
            rng: of the order.
        """
        rows = batch_rows(list(self._kept.values()))
        rng.shuffle(rows)
        return [_up_to(rows[at::count], turns) for at in range(count)]


def _is_example(trajectory: Trajectory) -> bool:
    """Whether every turn is the policy's own, and names the action that was taken."""
    return all(turn.is_trained and not turn.parse_failed for turn in trajectory.turns)


def _key(trajectory: Trajectory) -> Key:
    """What was told and said: equal for episodes from which the same would be learnt."""
    return tuple((segment.prefix, tuple(segment.ids)) for segment in trajectory.segments)


def _up_to(rows: list[Row], turns: int) -> list[Row]:
    """The first rows, of so many turns in all."""
    ends = accumulate(len(row.segment.turns) for row in rows)
    return [row for at, (row, end) in enumerate(zip(rows, ends, strict=True)) if end <= turns or at == 0]
