"""The lake as it is told, the way across it, and its exact baselines."""

from __future__ import annotations

import gymnasium
import pytest

from benchmarks.world_baselines import exact
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent

AGENT = FrozenLakeAgent()


@pytest.mark.parametrize(
    ("observation", "told"),
    [
        (0, "You are at row 0, column 0: left edge, down ice, right ice, up edge."),
        (6, "You are at row 1, column 2: left hole, down ice, right hole, up ice."),
        (14, "You are at row 3, column 2: left ice, down edge, right goal, up ice."),
    ],
)
def test_ice_hole_goal_and_edge_are_told_where_they_are(observation: int, told: str) -> None:
    assert AGENT.format_observation(observation) == told


def test_the_baselines_are_those_of_dynamic_programming() -> None:
    env = gymnasium.make(AGENT.env_id, **AGENT.env_kwargs)
    random = exact(env, lambda actions, state: sum(actions) / 4)
    assert AGENT.baselines["random"] == round(random, 4)
    assert AGENT.baselines["optimal"] == exact(env, lambda actions, state: max(actions)) == 1.0


def test_another_map_is_told_and_crossed_too() -> None:
    class Pond(FrozenLakeAgent):
        env_kwargs = {"desc": ["SFH", "FFG"], "is_slippery": False}  # noqa: RUF012

    assert (
        Pond().format_observation(4)
        == "You are at row 1, column 1: left ice, down edge, right goal, up ice."
    )
    assert [Pond().first_actions(field) for field in (0, 1, 4)] == [[1, 2], [1], [2]]
    (panel,) = Pond().policy_map().panels
    assert (panel.rows, panel.columns) == (["0", "1"], ["0", "1", "2"])
