"""CliffWalking-v1: walk along a cliff to the goal; a fall costs 100 and begins again."""

from llamagym_tui.agents._grid import GridAgent


class CliffWalkingAgent(GridAgent):
    """Plays ``CliffWalking-v1``; an observation is row * 12 + column, both counted from 0 at the top left."""

    env_id = "CliffWalking-v1"
    title = "Cliff Walking"
    description = "Walk along the cliff to the goal without falling."
    action_names = ("up", "right", "down", "left")
    action_keys = {"w": 0, "d": 1, "s": 2, "a": 3}
    baselines = {"random": -2079.1, "optimal": -13.0}
    """Exact mean returns within 200 steps; ``python -m benchmarks.world_baselines cliff_walking`` computes them."""
    place = "cliff"
    words = {"S": "ground", "F": "ground", "H": "cliff", "G": "goal"}
    glyphs = {"S": "S", "F": "·", "H": "#", "G": "G"}
    grounds = {"S": "floor", "F": "floor", "H": "danger", "G": "goal"}
    rows = ("F" * 12, "F" * 12, "F" * 12, "SHHHHHHHHHHG")

    def get_system_prompt(self) -> str:
        return (
            "You are playing Cliff Walking. Reach the goal in few steps without falling off the cliff. "
            'Reply with {"action": 0} to go up, {"action": 1} to go right, '
            '{"action": 2} to go down or {"action": 3} to go left.'
        )
