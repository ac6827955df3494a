"""Observations of any space in words that a small model can read: each number of a Box as 0 to 99 of its range.

The range is the space's own if its bounds are finite and not too far apart; otherwise random play shows it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Box, Space

Range = tuple[float, float]
"""The smallest number and the largest one, which differ."""

LEVELS = 100
"""Levels of a range."""
WIDEST = 1_000.0
"""The largest difference of two bounds that still say where between them a number will be."""
STEPS = 1_000
"""Most steps of the random play by which ranges are measured."""
LONG_S = 10.0
"""Most seconds of it."""
SEED = 0
"""The seed of it."""


def level(number: float, low: float, high: float) -> str:
    """A number as 0 to 99 of its range; a number outside the range counts as the nearer end."""
    if math.isnan(number):
        return "nan"
    within = min(max(number, low), high)
    reached = int((within - low) * LEVELS / (high - low))
    return str(min(reached, LEVELS - 1))  # the upper end belongs to the last level


def named_levels(names: Sequence[str], numbers: Any, ranges: Sequence[Range]) -> str:
    """Numbers as 0 to 99 of their ranges, each after its name: ``position 47, speed 52``."""
    return ", ".join(
        f"{name} {level(float(number), *bounds)}"
        for name, number, bounds in zip(names, numbers, ranges, strict=True)
    )


def in_words(
    space: Space[Any], observation: Any, names: Iterator[str], ranges: Iterator[Range]
) -> str:
    """An observation as short text: a Dict with its keys, a Tuple in order, each number after its name if it has one.

    Args:
        names: names of the numbers, in order; there may be fewer names than numbers.
        ranges: ranges of the numbers of all Boxes, in order.
    """
    from gymnasium import spaces

    match space:
        case spaces.Dict():
            of_keys = []
            for key, part in space.spaces.items():
                of_keys.append(f"{key}: {in_words(part, observation[key], names, ranges)}")
            return "; ".join(of_keys)
        case spaces.Tuple():
            of_parts = []
            for part, value in zip(space.spaces, observation, strict=True):
                of_parts.append(in_words(part, value, names, ranges))
            return ", ".join(of_parts)
        case spaces.Box():
            numbers = [level(float(number), *next(ranges)) for number in _flat(observation)]
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            numbers = [str(int(number)) for number in _flat(observation)]
        case _:
            return as_text(observation)
    return ", ".join(f"{next(names, '')} {number}".lstrip() for number in numbers)


def fields(observation: int, sizes: Sequence[int]) -> list[int]:
    """The numbers that a Discrete observation is made of, as row and column; the last one counts fastest."""
    import numpy as np

    return [int(field) for field in np.unravel_index(observation, sizes)]


def ranges_of(env: gymnasium.Env[Any, Any], earlier: Sequence[Range] = ()) -> Sequence[Range]:
    """The range of each number of the Boxes in an environment's observations, in order.

    Bounds that say nothing are replaced by the 1st to the 99th percentile of random play on a fixed seed. The ranges
    that were found `earlier` are kept if there are as many of them.
    """
    given = [bounds for box, _ in _boxes(env.observation_space) for bounds in _bounds(box)]
    if len(earlier) == len(given):
        return earlier
    if all(given):  # nothing has to be played
        return [bounds for bounds in given if bounds is not None]
    ranges = []
    numbers_by_place = zip(*_random_play(env), strict=True)
    for bounds, numbers in zip(given, numbers_by_place, strict=True):
        ranges.append(bounds or _percentiles(numbers))
    return ranges


def _boxes(space: Space[Any], observation: Any = None) -> Iterator[tuple[Box, Any]]:
    """Each Box in a space, with its part of an observation."""
    from gymnasium import spaces

    parts: Mapping[Any, Space[Any]] = {}
    if isinstance(space, spaces.Box):
        yield space, observation
    elif isinstance(space, spaces.Dict):
        parts = space.spaces
    elif isinstance(space, spaces.Tuple):
        parts = dict(enumerate(space.spaces))
    for key, part in parts.items():
        yield from _boxes(part, None if observation is None else observation[key])


def _bounds(box: Box) -> Iterator[Range | None]:
    """The range of each number of a Box; None if its bounds say nothing. Small whole numbers get a range in which they
    stay as they are."""
    is_whole = box.dtype is not None and box.dtype.kind in "iu"
    for low, high in zip(_flat(box.low), _flat(box.high), strict=True):
        if is_whole and low >= 0 and high < LEVELS:
            yield 0.0, float(LEVELS)
        elif 0 < float(high) - float(low) <= WIDEST:
            yield _rounded(low, high)
        else:
            yield None


def _random_play(env: gymnasium.Env[Any, Any]) -> list[list[float]]:
    """The numbers of the Boxes in each observation of random play, which ends early if the environment fails."""

    def numbers(observation: Any) -> list[float]:
        found: list[float] = []
        for _, part in _boxes(env.observation_space, observation):
            found.extend(float(number) for number in _flat(part))
        return found

    env.action_space.seed(SEED)
    seen = [numbers(env.reset(seed=SEED)[0])]
    until = time.monotonic() + LONG_S
    with suppress(Exception):
        for _ in range(STEPS):
            if time.monotonic() > until:
                break
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            seen.append(numbers(observation))
            if terminated or truncated:
                env.reset()
    return seen


def _percentiles(numbers: Sequence[float]) -> Range:
    """The range from the 1st to the 99th percentile of the finite ones of some numbers."""
    import numpy as np

    finite = [number for number in numbers if math.isfinite(number)]
    if not finite:
        finite = [0.0]
    low, high = _rounded(*np.percentile(finite, [1, 99]))
    return (low, high) if high > low else (low - 1, low + 1)


def _rounded(low: float, high: float) -> Range:
    """A range with five digits, as a person can read it in a run's settings."""
    return float(f"{low:.5g}"), float(f"{high:.5g}")


def _flat(array: Any) -> Iterator[Any]:
    """The numbers of an array of any shape, or a single number, in order."""
    import numpy as np

    return iter(np.ravel(array).tolist())


def as_text(value: Any) -> str:
    """Numbers, arrays, tuples, mappings and strings as short literal text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool | str):
        return str(value) or "(nothing)"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {as_text(item)}" for key, item in value.items()) or "(nothing)"
    if isinstance(value, Sequence):
        return "[" + ", ".join(as_text(item) for item in value) + "]"
    return str(value)
