"""CartPole-v1: push a cart left or right so that the pole on it stays upright."""

import math
from typing import Any

from llamagym_tui.agent import Agent, Dots, Panel, PolicyMap, named_levels

NUMBERS = ("position", "speed", "angle", "spin")
RANGES = ((-2.4, 2.4), (-3.0, 3.0), (-0.21, 0.21), (-3.5, 3.5))
"""An episode ends at 2.4 metres or 0.2095 radians, either way."""
TRACK = 5.4
"""Metres of the track in a drawing; an episode ends 2.4 metres from its middle."""
POLE = 1.0
"""Metres of the pole."""
CART = (0.4, 0.24)
"""Width and height of the cart, as Gymnasium draws it."""
COLUMNS = 37
"""Columns of a drawing, in which all lengths and angles are to scale."""
ROWS = 5


class CartPoleAgent(Agent):
    """Plays ``CartPole-v1``; an observation is position (m), speed (m/s), angle (rad) and spin (rad/s)."""

    history = 0
    env_id = "CartPole-v1"
    title = "Cart Pole"
    description = "Keep the pole on the cart upright."
    action_names = ("left", "right")
    action_keys = {"a": 0, "d": 1}
    baselines = {"random": 22.0, "expert": 500.0}
    """Mean returns; ``python -m benchmarks.world_baselines cart_pole`` measures them."""
    return_unit = "steps upright"
    run_settings = {"ppo.entropy_coef": 0.01, "ppo.entropy_coef_final": 0.01}
    """One action earns only little more than the other here, so the usual bonus would keep the policy near random."""

    def get_system_prompt(self) -> str:
        return (
            "You are playing Cart Pole. Keep the pole upright and the cart near the middle. Numbers go from 0 to 99. "
            'Reply with {"action": 0} to push left or {"action": 1} to push right.'
        )

    def format_observation(self, observation: Any) -> str:
        return f"{named_levels(NUMBERS, observation, RANGES).capitalize()}."

    def draw(self, observation: Any) -> list[str]:
        """The cart on its track and the pole on it, to scale."""
        dots = Dots(COLUMNS, ROWS)
        per_metre = (dots.width - 1) / TRACK
        ground = dots.height - 1
        middle = (float(observation[0]) + TRACK / 2) * per_metre
        half = round(CART[0] / 2 * per_metre)
        roof = ground - CART[1] * per_metre
        dots.line(0, ground, dots.width - 1, ground)
        for y in range(round(roof), ground):
            dots.line(round(middle) - half, y, round(middle) + half, y)
        angle = float(observation[2])
        length = POLE * per_metre
        dots.line(middle, roof, middle + math.sin(angle) * length, roof - math.cos(angle) * length)
        return dots.lines

    def expert(self, observation: Any) -> int:
        """A linear controller, which keeps the pole up for all 500 steps."""
        position, speed, angle, spin = [float(number) for number in observation]
        return int(position + 1.5 * speed + 18 * angle + 3 * spin > 0)

    def policy_map(self) -> PolicyMap:
        """P(right) by angle and spin, the cart at rest in the middle."""
        angles = [step * 0.04 for step in range(-5, 6)]
        spins = [step * 0.5 for step in range(-5, 6)]
        states = [[(0.0, 0.0, angle, spin) for spin in spins] for angle in angles]
        rows = [f"{math.degrees(angle):+.0f}°" for angle in angles]
        columns = [f"{10 * spin:+.0f}" for spin in spins]
        panel = Panel("cart at rest", rows, columns, states, "angle", "spin in tenths of rad/s")
        return PolicyMap([panel], action=1)
