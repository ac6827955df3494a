"""Exact mean returns of random and of optimal play in held-out and strangers' worlds, by dynamic programming.

python -m benchmarks.held_out.exact
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import gymnasium
import numpy as np

from benchmarks.held_out import abbey, greenhouse, tide
from benchmarks.strangers import post, stall, tank
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


def tank_return(choice: Choice) -> float:
    """An array has an axis for the level, the mark and whether it pours."""
    level = np.arange(100)
    marks = np.arange(100)
    values = np.zeros((100, 100, 2))
    for _ in range(tank.TURNS):
        worth = []
        for drained in tank.DRAINED:
            of_action = np.zeros_like(values)
            for pours, rain in enumerate(tank.RAIN):
                then = np.clip(level + rain - drained, 0, 99)
                paid = np.maximum(-1, 1 - np.abs(then[:, None] - marks) / 10)
                stays = (1 - tank.CHANGES) * values[then, :, pours]
                of_action[:, :, pours] = paid + stays + tank.CHANGES * values[then, :, 1 - pours]
            worth.append(of_action)
        values = choice(worth)
    return float(values[20:80, 30:70].mean())


def post_return(choice: Choice) -> float:
    fields = list(product(range(post.SIZE), repeat=2))

    def after(field: tuple[int, int], move: tuple[int, int]) -> tuple[int, int]:
        x, y = (min(max(a + b, 0), post.SIZE - 1) for a, b in zip(field, move, strict=True))
        return x, y

    def step(goal: tuple[int, int], later: dict[Any, float], reached: float) -> dict[Any, float]:
        """What each field is worth a turn earlier; `reached` comes after the goal, which pays 1."""
        return {
            field: float(
                choice(
                    [
                        -0.02 + (1 + reached if then == goal else later[then])
                        for then in (after(field, move) for move in post.MOVES.values())
                    ]
                )
            )
            for field in fields
        }

    returns = []
    for door in fields:
        carrying = [dict.fromkeys(fields, 0.0)]  # by the turns that are left
        for _ in range(post.TURNS):
            carrying.append(step(door, carrying[-1], 0.0))
        for parcel in fields:
            if parcel == door:
                continue
            values = dict.fromkeys(fields, 0.0)
            for left in range(post.TURNS):
                values = step(parcel, values, carrying[left][parcel])
            returns += [values[field] for field in fields if field not in (door, parcel)]
    return float(np.mean(returns))


def stall_return(choice: Choice) -> float:
    """An array has an axis for the price, and one for the crates."""
    price = np.arange(100)
    pull = np.array([round(0.3 * (50 - int(each))) for each in price])
    values = np.zeros((100, stall.MOST + 1))
    for _ in range(stall.TURNS):
        moves = range(-18, 19)
        later = np.mean([values[np.clip(price + pull + move, 1, 99)] for move in moves], axis=0)
        buy = later.copy()
        buy[:, :-1] = later[:, 1:] - price[:, None] / 10
        sell = later.copy()
        sell[:, 1:] = later[:, :-1] + price[:, None] / 10
        values = choice([buy, sell, later])
    return float(values[20:80, 0].mean())


def best(worth: Sequence[Any]) -> Any:
    return np.max(worth, axis=0)


def by_chance(worth: Sequence[Any]) -> Any:
    return np.mean(worth, axis=0)


def main() -> None:
    worlds = {
        "greenhouse": greenhouse_return,
        "abbey": abbey_return,
        "tank": tank_return,
        "post": post_return,
        "stall": stall_return,
    }
    for name, mean_return in worlds.items():
        print(f"{name}: random {mean_return(by_chance):.4f}, optimal {mean_return(best):.4f}")
    print(f"tide: random 0, without memory {memoryless_tide():.4f}, optimal {tide.JUDGED}")


if __name__ == "__main__":
    main()
