"""Evaluates a policy, or compares two on the same seeds: episodes in environments of their own, which count in no run.

A difference of pairs is known better than either mean. As many pairs are played as its 95 % confidence interval needs.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from msgspec.structs import replace

from llamagym_tui.protocol.events import EvaluationFinished, PolicyMapped, PromptsCompared
from llamagym_tui.state.returns import MeanReturn, margin, mean_return
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts, evaluated
from llamagym_tui.trainer.rollout.rollout import Rollout


def evaluate(
    rollout: Rollout,
    episodes: int,
    *,
    limit_s: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda done: None,
    ended: list[EpisodeCounts],
) -> EvaluationFinished | None:
    """Play a new rollout's episodes and close it; exactly `episodes` of them unless stopped or out of time.

    Returns None if it was stopped with episodes under way: without the long ones the mean would be biased. The policy's
    own random state is left as it was.

    Args:
        limit_s: seconds after which no episode begins; those under way are played on. None: no limit.
        progress: called with the number of episodes that have ended.
        ended: receives the episodes; those of a number have the same seed in every evaluation with this one.
    Raises:
        EnvError: too many episodes in a row failed.
        PromptTooLongError: the model cannot read a first prompt.
        GeneratorError: an endpoint gives no reply.
    """
    began = time.perf_counter()
    rollout.mode = "inference"
    rollout.episode_limit = episodes
    with closing(rollout), rollout.policy.evaluation_seed(rollout.seed):
        while len(ended) < episodes and not should_stop():
            ended += rollout.step()
            progress(len(ended))
            if limit_s is not None and time.perf_counter() - began >= limit_s:
                episodes = rollout.episodes + rollout.live
                rollout.episode_limit = episodes
    if rollout.live:
        return None
    return evaluated(
        ended,
        greedy=rollout.greedy,
        elapsed_s=time.perf_counter() - began,
        dropped=rollout.failures.dropped,
    )


FIRST = 256
"""Pairs of the first round, from which is known how many are needed."""
ROUNDS = 8
"""Times that some pairs are played, at most."""
MOST = 20_000
"""Pairs that are played, at most."""
SHARE = 0.1
"""Part of the distance between the baselines that is enough as half an interval."""
HALF_WIDTH = 0.05
"""Half an interval that is enough where there are no baselines."""
NONE = MeanReturn(0.0, 0.0, 0)
Episodes = list[EpisodeCounts]
Pairs = tuple[Episodes, Episodes]
Play = Callable[[int, int, int, Episodes], bool]
"""Plays a side, 0 or 1: a number of episodes on the seeds of a number, added to a list; false if it was stopped."""


def enough_for(baselines: Mapping[str, float]) -> float:
    """Half an interval that is enough where none is asked for."""
    known = baselines.values() or (0.0,)
    return SHARE * (max(known) - min(known)) or HALF_WIDTH


def difference(a: Episodes, b: Episodes) -> MeanReturn:
    """By how much B earns more, pair by pair."""
    differences = [y.episode_return - x.episode_return for x, y in zip(a, b, strict=True)]
    return mean_return(differences) or NONE


def played(play: Play, enough: float, most: int = MOST, pairs: Pairs | None = None) -> Pairs | None:
    """Episodes of A and B, pair by pair on the same seed: as many as half the interval needs, and `most` at most.

    None: `play` was not done to the end.

    Args:
        pairs: receives them, those before an error of `play`, too.
    """
    pairs = ([], []) if pairs is None else pairs
    wanted = min(FIRST, most)
    for seed in range(ROUNDS):
        sides: Pairs = ([], [])
        try:
            for side in range(2):
                if not play(side, wanted, seed, sides[side]):
                    return None
        finally:
            _add_pairs(pairs, sides)
        found = difference(*pairs)
        half = margin(found.stderr)
        needed = math.ceil(1.1 * found.episodes * (half / enough) ** 2)
        wanted = min(needed, most) - found.episodes
        if half <= enough or wanted <= 0:
            break
    return pairs


def _add_pairs(pairs: Pairs, sides: Pairs) -> None:
    """Add the episodes of a round; one that failed on one side has no pair."""
    by_number = [{episode.number: episode for episode in side} for side in sides]
    for number in sorted(by_number[0].keys() & by_number[1].keys()):
        for pair, episodes in zip(pairs, by_number, strict=True):
            pair.append(episodes[number])


def compared(
    pairs: Pairs,
    played_by: Sequence[Mapping[str, Any]],
    *,
    elapsed_s: float,
    greedy: bool,
    enough: float,
    maps: Sequence[PolicyMapped] = (),
) -> PromptsCompared:
    """Pairs as an event.

    Args:
        played_by: for A and for B, the fields of `EvaluationFinished` that say which policy and prompt played.
        elapsed_s: that both took together.
        enough: half the interval that was wanted.
        maps: the policy under A and under B, if the agent has a map.
    """
    sides = []
    for side, fields in zip(pairs, played_by, strict=True):
        figures = evaluated(side, greedy=greedy, elapsed_s=elapsed_s)
        sides.append(replace(figures, **fields))
    by = difference(*pairs)
    return PromptsCompared(
        a=sides[0],
        b=sides[1],
        pairs=by.episodes,
        difference=by.mean,
        difference_stderr=by.stderr,
        enough=enough,
        maps=list(maps),
    )
