"""A bonus for reaching observations that were seldom seen; they are counted by a hash of their tokens.

It is part of the reward that PPO sees, as penalties are; what is shown, logged and evaluated is the environment's
alone. The counts are the whole run's and stand in its checkpoints; observations that share one have a smaller bonus.
"""

from collections import Counter
from collections.abc import Sequence
from zlib import crc32

import torch
from torch import Tensor

from llamagym_tui.engine.learning.distinguished import observation_ids
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer

COUNTS = 2**18
"""Counts at most: some 30 MB."""


def turn_bonuses(
    chat: ChatTokenizer, trajectories: Sequence[Trajectory], counts: Counter[int], *, coef: float
) -> Tensor:
    """(K,) coef / sqrt(n) for the observation that each turn led to, seen n times with this batch, which is counted.

    A trajectory's last turn has none: nothing was played from where it led to.

    Source: arXiv:1611.04717, algorithm 1, where a turn has the bonus of its own observation.
    """
    seen = [
        [crc32(repr(ids).encode()) % COUNTS for segment in each.segments for ids in observation_ids(chat, segment)]
        for each in trajectories
    ]
    counts.update(key for keys in seen for key in keys)
    # By its own observation, any reply to what is seldom seen would look good until the critic expects the bonus.
    return torch.tensor(
        [0.0 if key is None else coef * counts[key] ** -0.5 for keys in seen for key in (*keys[1:], None)]
    )
