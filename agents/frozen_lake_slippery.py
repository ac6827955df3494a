"""FrozenLake-v1 on slippery ice: two of three steps go to a side, so every episode needs some luck."""

from llamagym_tui.agents.frozen_lake import FrozenLakeAgent


class SlipperyFrozenLakeAgent(FrozenLakeAgent):
    env_kwargs = {"map_name": "4x4", "is_slippery": True}
    title = "Slippery Frozen Lake"
    description = "Cross the ice to the goal, where most steps slip to a side."
    baselines = {"random": 0.0139, "optimal": 0.7442}
    """Exact, within 100 steps; ``python -m benchmarks.world_baselines frozen_lake_slippery`` computes them."""
