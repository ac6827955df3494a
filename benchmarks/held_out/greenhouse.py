"""Greenhouse-v0: four numbers, three actions, and a rule that nobody names; the generic agent words it.

The sun warms and dries. A flower grows while it is humid but not wet, and not too warm; cutting it pays by its size, if
that is large enough, and takes a turn. Pollen means nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from llamagym_tui.agents.generic import GenericAgent

MIST = 0
VENT = 1
SNIP = 2
MOST_TURNS = 16
GROWTH = 15
"""By how much the flower grows in a turn."""
MOST_BLOOM = 90
"""The largest bloom that there can be."""
LEAST_BLOOM = 30
"""The smallest bloom that is paid for."""
HUMID = (35, 75)
"""The humidities between which the flower grows."""
WARM = 60
"""The warmth up to which it grows."""
DRYING = (4, 12)
"""By how much the sun may dry in a turn, each as likely as the other."""
WARMING = (4, 12)
"""By how much it may warm in a turn, each as likely as the other."""


class Greenhouse(NamedTuple):
    """Numbers from 0 to 99, or arrays of them."""

    humidity: Any
    warmth: Any
    bloom: Any


def reward(bloom: Any, action: int) -> Any:
    return (action == SNIP) * (bloom >= LEAST_BLOOM) * bloom / 50


def after(now: Greenhouse, action: int, drying: int, warming: int) -> Greenhouse:
    humidity = np.clip(now.humidity - drying + {MIST: 30, VENT: -8, SNIP: 0}[action], 0, 99)
    warmth = np.clip(now.warmth + warming - 30 * (action == VENT), 0, 99)
    grows = (humidity >= HUMID[0]) & (humidity <= HUMID[1]) & (warmth <= WARM)
    return Greenhouse(
        humidity, warmth, np.minimum(now.bloom * (action != SNIP) + GROWTH * grows, MOST_BLOOM)
    )


class GreenhouseEnv(gymnasium.Env[Any, Any]):
    """Begins with any humidity and warmth and no bloom; Gymnasium's time limit ends it."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 99, (4,), np.int64)
        self.action_space = spaces.Discrete(3)
        self.now = Greenhouse(0, 0, 0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.now = Greenhouse(*self.np_random.integers(100, size=2), 0)
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        paid = float(reward(self.now.bloom, action))
        self.now = after(
            self.now, int(action), self.np_random.choice(DRYING), self.np_random.choice(WARMING)
        )
        return self._seen(), paid, False, False, {}

    def _seen(self) -> Any:
        return np.array([*self.now, self.np_random.integers(100)], dtype=np.int64)


if "Greenhouse-v0" not in gymnasium.registry:
    gymnasium.register("Greenhouse-v0", entry_point=GreenhouseEnv, max_episode_steps=MOST_TURNS)


class GreenhouseAgent(GenericAgent):
    env_id = "Greenhouse-v0"
    title = "Greenhouse"
    action_names = ("mist", "vent", "snip")
    observation_names = ("humidity", "warmth", "bloom", "pollen")
    baselines = {"random": 0.6353, "optimal": 4.1153}  # noqa: RUF012
    """Exact mean returns; ``python -m benchmarks.held_out.exact`` computes them."""
