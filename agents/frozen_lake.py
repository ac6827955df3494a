"""FrozenLake-v1: walk to the goal around the holes, on ice that slips or does not.

Other maps are keyword arguments of the environment.
"""

from llamagym_tui.agents._grid import GridAgent, Rows

MAPS = {
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": (
        "SFFFFFFF",
        "FFFFFFFF",
        "FFFHFFFF",
        "FFFFFHFF",
        "FFFHFFFF",
        "FHHFFFHF",
        "FHFFHFHF",
        "FFFHFFFG",
    ),
}
"""Gymnasium's maps, row by row: start, frozen, hole, goal."""


class FrozenLakeAgent(GridAgent):
    """Plays ``FrozenLake-v1``; an observation is row * columns + column, both counted from 0 at the top left."""

    env_id = "FrozenLake-v1"
    env_kwargs = {"map_name": "4x4", "is_slippery": False}
    title = "Frozen Lake"
    description = "Cross the ice to the goal without falling into a hole."
    action_names = ("left", "down", "right", "up")
    action_keys = {"a": 0, "s": 1, "d": 2, "w": 3}
    baselines = {"random": 0.0139, "optimal": 1.0}
    """Exact shares of episodes that reach the goal within 100 steps, undiscounted, by dynamic programming."""
    return_unit = "goals an episode"
    place = "lake"
    words = {"S": "ice", "F": "ice", "H": "hole", "G": "goal"}
    glyphs = {"S": "S", "F": "·", "H": "O", "G": "G"}
    grounds = {"S": "ice", "F": "ice", "H": "danger", "G": "goal"}

    @property
    def rows(self) -> Rows:  # type: ignore[override]
        return self.env_kwargs.get("desc") or MAPS[self.env_kwargs.get("map_name", "4x4")]

    def get_system_prompt(self) -> str:
        slips = ""
        if self.env_kwargs.get("is_slippery", True):
            slips = "The ice is slippery: a step may go sideways. "
        return (
            f"You are playing Frozen Lake. Reach the goal without falling into a hole. {slips}"
            'Reply with {"action": 0} to go left, {"action": 1} to go down, '
            '{"action": 2} to go right or {"action": 3} to go up.'
        )
