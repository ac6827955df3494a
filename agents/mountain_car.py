"""MountainCar-v0: rock a weak car in a valley until it reaches the flag on the right hill.

An action is held for four steps: an episode is then 50 decisions instead of 200, and the expert no worse.
"""

import math
from typing import Any

from llamagym_tui.agent import Agent, Panel, PolicyMap, named_levels

RANGES = ((-1.2, 0.6), (-0.07, 0.07))
FLAG = 0.5
WIDTH = 41
"""Columns of a drawing."""
HEIGHT = 7
"""Rows of a drawing."""


class MountainCarAgent(Agent):
    """Plays ``MountainCar-v0``; an observation is position and speed."""

    history = 0
    action_repeat = 4
    env_id = "MountainCar-v0"
    title = "Mountain Car"
    description = "Rock the car in the valley until it is up at the flag."
    picture = "╲         ⚑\n ╲       ╱\n  ╲     ╱\n   ╲_o_╱"
    action_names = ("left", "wait", "right")
    action_keys = {"a": 0, "s": 1, "d": 2}
    baselines = {"random": -200.0, "expert": -121.1}
    """Mean returns; ``python -m benchmarks.world_baselines mountain_car`` measures them."""

    def get_system_prompt(self) -> str:
        return (
            "You are playing Mountain Car. Rock the car until it is up at the right. Numbers go from 0 to 99; speed 50 "
            'is at rest. Reply with {"action": 0} to push left, {"action": 1} to wait or {"action": 2} to push right.'
        )

    def format_observation(self, observation: Any) -> str:
        return f"{named_levels(('position', 'speed'), observation, RANGES).capitalize()}."

    def draw(self, observation: Any) -> str:
        """The valley, the car in it and the flag."""
        lines = [[" "] * WIDTH for _ in range(HEIGHT)]
        for column in range(WIDTH):
            position = -1.2 + 1.8 * column / (WIDTH - 1)
            lines[_row(position)][column] = "·"
        for position, glyph in ((FLAG, "F"), (float(observation[0]), "o")):
            column = round((position + 1.2) / 1.8 * (WIDTH - 1))
            lines[_row(position)][column] = glyph
        return "\n".join("".join(line) for line in lines)

    def expert(self, observation: Any) -> int:
        """Push the way that the car moves: this always leads up, though not by the fastest way."""
        return 2 if float(observation[1]) >= 0 else 0

    def policy_map(self) -> PolicyMap:
        positions = [-1.2 + 0.2 * step for step in range(10)]
        speeds = [0.01 * step for step in range(5, -6, -1)]
        states = [[(position, speed) for position in positions] for speed in speeds]
        rows = [f"{100 * speed:+.0f}" for speed in speeds]
        columns = [f"{10 * position:+.0f}" for position in positions]
        panel = Panel("car", rows, columns, states, "speed in hundredths", "position in tenths")
        return PolicyMap([panel], signs="←·→")


def _row(position: float) -> int:
    """The row of a drawing in which the ground lies at a position."""
    return round((1 - math.sin(3 * position)) / 2 * (HEIGHT - 1))
