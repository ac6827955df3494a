"""MountainCar-v0: rock a weak car in a valley until it reaches the flag on the right hill.

An action is held for four steps: an episode is then 50 decisions instead of 200, and the expert no worse.
"""

import math
from typing import Any

from llamagym_tui.agent import Agent, Dots, Panel, PolicyMap, named_levels

RANGES = ((-1.2, 0.6), (-0.07, 0.07))
FLAG = 0.5
COLUMNS = 37
"""Columns of a drawing."""
ROWS = 6


class MountainCarAgent(Agent):
    """Plays ``MountainCar-v0``; an observation is position and speed."""

    history = 0
    action_repeat = 4
    env_id = "MountainCar-v0"
    title = "Mountain Car"
    description = "Rock the car in the valley until it is up at the flag."
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

    def draw(self, observation: Any) -> list[str]:
        """The valley, the car ``o`` in it and the flag."""
        dots = Dots(COLUMNS, ROWS)
        lowest, highest = RANGES[0]
        per_position = (dots.width - 1) / (highest - lowest)
        for x in range(dots.width):
            dots.dot(x, round(_depth(lowest + x / per_position) * (dots.height - 1)))
        for position, sign in ((FLAG, "F"), (float(observation[0]), "o")):
            dots.put((position - lowest) * per_position, _depth(position) * (dots.height - 1), sign)
        return dots.lines

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


def _depth(position: float) -> float:
    """Depth of the ground at a position, from 0 on a hill to 1 in the valley."""
    return (1 - math.sin(3 * position)) / 2
