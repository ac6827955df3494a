"""Acrobot-v1: swing two links up by a torque at the joint between them, until the tip is high.

An action is held for three steps: random play, which is where learning begins, is then up in one of three episodes
instead of one in fifty.
"""

import math
from typing import Any

from llamagym_tui.agent import Agent, Dots, named_levels

NUMBERS = ("angle", "spin", "joint", "joint spin")
RANGES = ((-math.pi, math.pi), (-8.0, 8.0), (-math.pi, math.pi), (-16.0, 16.0))
COLUMNS = 25
"""Columns of a drawing."""
ROWS = 10
REACH = 2.1
"""Links from the pivot to the upper and the lower edge of a drawing; both together are two long."""


class AcrobotAgent(Agent):
    """Plays ``Acrobot-v1``; an observation has cosine and sine of both angles, counted from below, and both spins."""

    history = 0
    action_repeat = 3
    env_id = "Acrobot-v1"
    title = "Acrobot"
    description = "Swing two links until the tip is above the line."
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

    def draw(self, observation: Any) -> list[str]:
        """The two links from + over o to the tip O, to scale, and the line that the tip has to pass."""
        first, second, *_ = _angles(observation)
        dots = Dots(COLUMNS, ROWS)
        middle = (dots.width - 1) / 2
        per_link = (dots.height - 1) / (2 * REACH)
        pivot_y = REACH * per_link
        for x in range(0, dots.width, 3):
            dots.dot(x, round(pivot_y - per_link))
        joint_x = middle + math.sin(first) * per_link
        joint_y = pivot_y + math.cos(first) * per_link
        tip_x = joint_x + math.sin(first + second) * per_link
        tip_y = joint_y + math.cos(first + second) * per_link
        dots.line(middle, pivot_y, joint_x, joint_y)
        dots.line(joint_x, joint_y, tip_x, tip_y)
        dots.put(middle, pivot_y, "+")
        dots.put(joint_x, joint_y, "o")
        dots.put(tip_x, tip_y, "O")
        return dots.lines

    def expert(self, observation: Any) -> int:
        """Turn the joint the way it spins once it spins twice as fast as the first link: a good rule, not the best."""
        _, _, spin, joint_spin = _angles(observation)
        return 2 if joint_spin > 2 * spin else 0


def _angles(observation: Any) -> tuple[float, float, float, float]:
    """The angle of the first link, the angle between it and the second one, and the spin of each of these angles."""
    cos1, sin1, cos2, sin2, spin, joint_spin = [float(number) for number in observation]
    return math.atan2(sin1, cos1), math.atan2(sin2, cos2), spin, joint_spin
