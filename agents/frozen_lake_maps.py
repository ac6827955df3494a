"""A frozen lake with a new map each episode: no evaluation repeats a map of training, so the map has to be read."""

from functools import partial
from typing import Any

from llamagym_tui.agent import PolicyMap
from llamagym_tui.agents._grid import Field, Grid
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
    grid = Grid(SHOWN[0], FrozenLakeAgent.action_names)

    def _seen(self, observation: Any) -> tuple[Grid, Field]:
        letters, number = observation
        row, column = divmod(int(number), WIDTH)
        rows = tuple(letters[start : start + WIDTH] for start in range(0, len(letters), WIDTH))
        return self.grid._replace(rows=rows), Field(row, column)

    def get_system_prompt(self) -> str:
        return (
            f"The map shows you as X, holes as O and the goal as G. {super().get_system_prompt()}"
        )

    def format_observation(self, observation: Any) -> str:
        """The map with the walker on it as X, row by row, then what is around as on any lake."""
        grid, here = self._seen(observation)
        rows = [[SIGNS[kind] for kind in line] for line in grid.rows]
        rows[here.row][here.column] = "X"
        drawn = "\n".join(" ".join(row) for row in rows)
        return f"{drawn}\n{super().format_observation(observation)}"

    def policy_map(self) -> PolicyMap:
        """Every field of three lakes that training never meets."""
        panels = []
        for number, rows in enumerate(SHOWN, start=1):
            letters = "".join(rows)
            panel = self._panel(f"lake {number}", rows, partial(_at, letters))
            panels.append(panel)
        return self._mapped(panels)


def _at(letters: str, number: int) -> tuple[str, int]:
    """The observation on a field of a map."""
    return letters, number
