"""Acrobot-v1: swing two links up by a torque at the joint between them, until the tip is high.

An action is held for three steps: random play, which is where learning begins, is then up in one of three episodes
instead of one in fifty.
"""

import math
from typing import Any

from llamagym_tui.agent import Agent, Panel, PolicyMap, named_levels

NUMBERS = ("angle", "spin", "joint", "joint spin")
RANGES = ((-math.pi, math.pi), (-8.0, 8.0), (-math.pi, math.pi), (-16.0, 16.0))
WIDTH = 21
"""Columns of a drawing; one is about half as wide as a row is high."""
HEIGHT = 8
"""Rows of a drawing."""


class AcrobotAgent(Agent):
    """Plays ``Acrobot-v1``; an observation has cosine and sine of both angles, counted from below, and both spins."""

    history = 0
    action_repeat = 3
    env_id = "Acrobot-v1"
    title = "Acrobot"
    description = "Swing two links until the tip is above the line."
    picture = "── ── ── ──\n     o\n      ╲\n       o──o"
    action_names = ("clockwise", "wait", "counterclockwise")
    action_keys = {"a": 0, "s": 1, "d": 2}
    baselines = {"random": -451.5, "expert": -92.8}
    """Mean returns; ``python -m benchmarks.world_baselines acrobot`` measures them."""

    def get_system_prompt(self) -> str:
        return (
            "You are playing Acrobot. Swing the two links until the tip is high. Numbers go from 0 to 99; 50 is down, "
            'or at rest. Reply with {"action": 0} to turn the joint clockwise, {"action": 1} to wait or '
            '{"action": 2} to turn it counterclockwise.'
        )

    def format_observation(self, observation: Any) -> str:
        first, second, spin, joint_spin = _angles(observation)
        return f"{named_levels(NUMBERS, (first, spin, second, joint_spin), RANGES).capitalize()}."

    def draw(self, observation: Any) -> str:
        """The two links from + over o to the tip O, and the line that it has to pass."""
        first, second, *_ = _angles(observation)
        lines = [[" "] * WIDTH for _ in range(HEIGHT)]
        lines[2] = ["-"] * WIDTH
        # Four steps along the first link and four along the second one; the ends come last, to be drawn over the rest.
        for step in (1, 2, 3, 5, 6, 7, 0, 4, 8):
            along_first = min(step, 4) / 4
            along_second = max(step - 4, 0) / 4
            right = math.sin(first) * along_first + math.sin(first + second) * along_second
            down = math.cos(first) * along_first + math.cos(first + second) * along_second
            row = round((down + 2) / 4 * (HEIGHT - 1))
            column = round((right + 2) / 4 * (WIDTH - 1))
            lines[row][column] = {0: "+", 4: "o", 8: "O"}.get(step, "*")
        return "\n".join("".join(line) for line in lines)

    def expert(self, observation: Any) -> int:
        """Turn the joint the way it spins once it spins twice as fast as the first link: a good rule, not the best."""
        _, _, spin, joint_spin = _angles(observation)
        return 2 if joint_spin > 2 * spin else 0

    def policy_map(self) -> PolicyMap:
        """The first link's spin against the joint's, both links straight down."""
        spins = range(5, -6, -1)
        joint_spins = range(-10, 11, 2)
        states = [
            [(1.0, 0.0, 1.0, 0.0, spin, joint_spin) for joint_spin in joint_spins] for spin in spins
        ]
        rows = [f"{spin:+}" for spin in spins]
        columns = [f"{joint_spin:+}" for joint_spin in joint_spins]
        panel = Panel("straight", rows, columns, states, "spin", "joint spin")
        return PolicyMap([panel], signs="↻·↺")


def _angles(observation: Any) -> tuple[float, float, float, float]:
    """The angle of the first link, the angle between it and the second one, and the spin of each of these angles."""
    cos1, sin1, cos2, sin2, spin, joint_spin = [float(number) for number in observation]
    return math.atan2(sin1, cos1), math.atan2(sin2, cos2), spin, joint_spin
