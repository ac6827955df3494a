"""A frozen lake with a new map each episode: no evaluation repeats a map of training, so the map has to be read."""

from collections.abc import Mapping, Sequence
from typing import Any

from llamagym_tui.agent import best_actions
from llamagym_tui.agents._grid import Rows
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent

WIDTH = 4
"""Columns of a map."""
SHOWN = (
    ("SFFF", "HFFH", "FHFF", "FFFG"),
    ("SHFF", "FFFH", "HFFF", "FFFG"),
    ("SFFF", "FHHF", "FFHF", "FFFG"),
)
"""Maps kept for evaluations, of which the policy map shows every field."""
SIGNS = {"S": ".", "F": ".", "H": "O", "G": "G"}
"""The sign of a field for the model, by its letter."""


class FrozenLakeMapsAgent(FrozenLakeAgent):
    """Plays lakes that are drawn for each episode; an observation is the map's letters, row by row, and the number of
    the field on which the agent stands: row * 4 + column, both counted from 0 at the top left."""

    env_id = "llamagym_tui.agents._lake_maps_env:FrozenLakeMaps-v0"
    env_kwargs = {"maps": "training"}
    evaluation_kwargs = {"maps": "held out"}
    title = "Frozen Lake, new maps"
    description = "Read the map and cross the ice: a new lake each episode."
    baselines = {"random": 0.08, "optimal": 1.0}
    """Shares of episodes that reach the goal within 100 steps, on maps kept for evaluations;
    ``python -m benchmarks.world_baselines frozen_lake_maps 20000`` measures them."""
    rows = SHOWN[0]

    def seen(self, observation: Any) -> tuple[Rows, int, int]:
        letters, number = observation
        row, column = divmod(int(number), WIDTH)
        rows = tuple(letters[start : start + WIDTH] for start in range(0, len(letters), WIDTH))
        return rows, row, column

    def get_system_prompt(self) -> str:
        return (
            "The map shows you as X, holes as O and the goal as G. You are playing Frozen Lake. Reach the goal without "
            'falling into a hole. Reply with {"action": 0} to go left, {"action": 1} to go down, '
            '{"action": 2} to go right or {"action": 3} to go up.'
        )

    def format_observation(self, observation: Any) -> str:
        """The map with the walker on it as X, row by row, then the fields around as on any lake."""
        rows, row, column = self.seen(observation)
        signs = [[SIGNS[kind] for kind in line] for line in rows]
        signs[row][column] = "X"
        drawn = "\n".join(" ".join(line) for line in signs)
        return f"{drawn}\n{super().format_observation(observation)}"

    def first_actions(self, observation: Any) -> Sequence[int]:
        rows, _, _ = self.seen(observation)
        return best_actions("FrozenLake-v1", desc=rows, is_slippery=False)[int(observation[1])]

    def mean_return(self, shares: Mapping[Any, Sequence[float]], turns: int) -> None:
        """Unknown: the policy map has some of the lakes only."""

    def maps(self) -> Mapping[str, Rows]:
        """Three lakes that training never meets."""
        return {f"lake {number}": rows for number, rows in enumerate(SHOWN, start=1)}

    def observation_on(self, rows: Rows, number: int) -> tuple[str, int]:
        return "".join(rows), number
