"""FrozenLake8x8-v1 without slipping: four times the ice, and 14 steps at least."""

from llamagym_tui.agents.frozen_lake import FrozenLakeAgent


class FrozenLake8x8Agent(FrozenLakeAgent):
    env_id = "FrozenLake8x8-v1"
    env_kwargs = {"map_name": "8x8", "is_slippery": False}
    title = "Frozen Lake 8x8"
    description = "Cross a larger lake to the goal around its holes."
    baselines = {"random": 0.0019, "optimal": 1.0}
    """Exact, within 200 steps; ``python -m benchmarks.world_baselines frozen_lake_8x8`` computes them."""
