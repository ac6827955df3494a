"""Exact mean returns of random and of optimal play in the held-out worlds, by dynamic programming over the turns left.

python -m benchmarks.held_out.exact
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import gymnasium
import numpy as np

from benchmarks.held_out import abbey, greenhouse, tide
from benchmarks.world_baselines import exact

Choice = Callable[[Sequence[Any]], Any]
"""What states are worth, by what each of their actions is worth."""


def greenhouse_return(choice: Choice) -> float:
    """Over all humidities and warmths of the start; an array has one axis for each of them, and one for the bloom."""
    steps = greenhouse.MOST_BLOOM // greenhouse.GROWTH
    humidity, warmth, step = np.meshgrid(
        np.arange(100), np.arange(100), np.arange(steps + 1), indexing="ij"
    )
    now = greenhouse.Greenhouse(humidity, warmth, step * greenhouse.GROWTH)
    values = np.zeros(humidity.shape)
    suns = list(product(greenhouse.DRYING, greenhouse.WARMING))
    for _ in range(greenhouse.MOST_TURNS):
        worth = []
        for action in range(3):
            thens = (greenhouse.after(now, action, *sun) for sun in suns)
            later = [
                values[then.humidity, then.warmth, then.bloom // greenhouse.GROWTH]
                for then in thens
            ]
            worth.append(greenhouse.reward(now.bloom, action) + np.mean(later, axis=0))
        values = choice(worth)
    return float(values[:, :, 0].mean())


def abbey_return(choice: Choice) -> float:
    return exact(
        gymnasium.make(abbey.AbbeyAgent.env_id), lambda actions, state: float(choice(actions))
    )


def memoryless_tide() -> float:
    """Of who knows the present number alone: a former one is any other, so n of 99 are below n."""
    return tide.JUDGED * float(np.mean([abs(2 * number / 99 - 1) for number in range(100)]))


def best(worth: Sequence[Any]) -> Any:
    return np.max(worth, axis=0)


def by_chance(worth: Sequence[Any]) -> Any:
    return np.mean(worth, axis=0)


def main() -> None:
    for name, mean_return in (("greenhouse", greenhouse_return), ("abbey", abbey_return)):
        print(f"{name}: random {mean_return(by_chance):.4f}, optimal {mean_return(best):.4f}")
    print(f"tide: random 0, without memory {memoryless_tide():.4f}, optimal {tide.JUDGED}")


if __name__ == "__main__":
    main()
