"""Pairs of episodes on the same seeds, by which two prompts or policies are compared: a difference is known better than
either mean. As many are played as its 95 % confidence interval needs, within a bound.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from llamagym_tui.protocol.events import PolicyMapped, PromptsCompared
from llamagym_tui.returns import MeanReturn, margin, mean_return
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts, evaluated

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
"""Plays a side, 0 or 1: so many episodes on the seeds of a number, which go into a list; whether it came to the end."""


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
    shares = []
    for side, fields in zip(pairs, played_by, strict=True):
        figures = evaluated(side, greedy=greedy, elapsed_s=elapsed_s)
        sides.append(replace(figures, **fields))
        if side and all(each.actions for each in side):
            shares.append(_action_shares(side))
    by = difference(*pairs)
    return PromptsCompared(
        a=sides[0],
        b=sides[1],
        pairs=by.episodes,
        difference=by.mean,
        difference_stderr=by.stderr,
        enough=enough,
        shares=shares if len(shares) == 2 else [],
        maps=list(maps),
    )


def _action_shares(episodes: Episodes) -> list[float]:
    """The share of the turns in which the reply names each action."""
    turns = sum(each.length for each in episodes)
    by_action = zip(*(each.actions for each in episodes), strict=True)
    return [sum(counts) / turns for counts in by_action]
