"""Pairs of episodes on the same seeds, by which two prompts or policies are compared: a difference is known better than
either mean. As many are played as its 95 % confidence interval needs, within a bound.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llamagym_tui.protocol.events import PromptsCompared
from llamagym_tui.returns import MeanReturn, margin, mean_return
from llamagym_tui.trainer.rollout.episode_counts import EndedEpisode, evaluated

FIRST, ROUNDS, MOST = 256, 8, 20_000
"""Pairs of episodes from which is known how many are needed; times that some are played, and pairs, at most."""
SHARE, HALF_WIDTH = 0.1, 0.05
"""Half an interval that is enough: of the distance between the baselines, or where there are none."""
NONE = MeanReturn(0.0, 0.0, 0)
Episodes = list[EndedEpisode]
Pairs = tuple[Episodes, Episodes]
Play = Callable[[int, int, int, Episodes], bool]
"""Plays a side, 0 or 1: so many episodes on the seeds of a number, which go into a list; whether it came to the end."""


def enough_for(baselines: Mapping[str, float]) -> float:
    """Half an interval that is enough where none is asked for."""
    known = baselines.values() or (0.0,)
    return SHARE * (max(known) - min(known)) or HALF_WIDTH


def difference(a: Episodes, b: Episodes) -> MeanReturn:
    """By how much B earns more, pair by pair."""
    return (
        mean_return([y.episode_return - x.episode_return for x, y in zip(a, b, strict=True)])
        or NONE
    )


def played(play: Play, enough: float, most: int = MOST) -> Pairs | None:
    """Episodes of A and B, pair by pair on the same seed: as many as half the interval needs, and `most` at most.

    None: `play` was not done to the end.
    """
    pairs: Pairs = ([], [])
    wanted = min(FIRST, most)
    for seed in range(ROUNDS):
        sides: list[dict[int, EndedEpisode]] = []
        for side in range(2):
            ended: Episodes = []
            if not play(side, wanted, seed, ended):
                return None
            sides.append({episode.number: episode for episode in ended})
        for number in sorted(
            sides[0].keys() & sides[1].keys()
        ):  # an episode that failed has no pair
            for pair, episodes in zip(pairs, sides, strict=True):
                pair.append(episodes[number])
        found = difference(*pairs)
        half = margin(found.stderr)
        wanted = min(math.ceil(1.1 * found.episodes * (half / enough) ** 2), most) - found.episodes
        if half <= enough or wanted <= 0:
            break
    return pairs


def compared(
    pairs: Pairs,
    played_by: Sequence[dict[str, Any]],
    *,
    elapsed_s: float,
    greedy: bool,
    **more: Any,
) -> PromptsCompared:
    """Pairs as an event: for A and for B what it was `played_by`, for both `more` of the event's fields."""
    by, sides = difference(*pairs), []
    shares: list[list[float]] = []
    for side, of in zip(pairs, played_by, strict=True):
        sides.append(evaluated(side, greedy=greedy, elapsed_s=elapsed_s, **of))
        if side and all(each.actions for each in side):
            turns = sum(each.length for each in side)
            shares.append(
                [
                    sum(counts) / turns
                    for counts in zip(*(each.actions for each in side), strict=True)
                ]
            )
    more |= {
        "difference": by.mean,
        "difference_stderr": by.stderr,
        "shares": shares if len(shares) == 2 else [],
    }
    return PromptsCompared(a=sides[0], b=sides[1], pairs=by.episodes, **more)
