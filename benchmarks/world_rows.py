"""The rows of the table of worlds: what is played, for how long, and what is wanted of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import strangers
from benchmarks.held_out import WANTED
from benchmarks.held_out.abbey import AbbeyAgent
from benchmarks.held_out.greenhouse import GreenhouseAgent
from benchmarks.held_out.tide import TideAgent
from benchmarks.strangers.post import PostAgent
from benchmarks.strangers.stall import StallAgent
from benchmarks.strangers.tank import TankAgent
from llamagym_tui.agents.generic import GenericAgent
from llamagym_tui.agents.kitchen import KitchenAgent
from llamagym_tui.game.agent_base import AgentBase

HERE = Path(__file__).parent
MOST_DEMONSTRATIONS = 50


class Row(NamedTuple):
    """A world, or one of two ways to learn it."""

    agent: str
    """As of `train`."""
    wanted: float
    """Median of the mean returns of greedy play, at least."""
    episodes: int
    """Of each evaluation."""
    sampled: float | None = None
    """The same of sampled play. None: nothing is wanted of it."""
    env: Mapping[str, Any] = {}
    """Keyword arguments of the environment."""
    demonstrations: int = 0
    """Expert episodes of the warm start; 0: there is none."""
    turns: int = 0
    """The run goes on until it has what is wanted, or so many turns. 0: minutes alone count."""
    has_mlp: bool = True
    """Whether numbers can stand for its observations, and an index for its actions."""


def held_out(agent: type[GenericAgent], name: str, episodes: int) -> Row:
    return Row(str(HERE / "held_out" / f"{name}.py"), part_of_the_way(agent, WANTED), episodes)


def of_stranger(agent: type[AgentBase], name: str) -> Row:
    wanted = part_of_the_way(agent, strangers.WANTED)
    return Row(str(HERE / "strangers" / f"{name}.py"), wanted, 300, has_mlp=False)


def part_of_the_way(agent: type[AgentBase], share: float) -> float:
    """The return at a share of the way from random play to optimal play."""
    random, optimal = agent.baselines["random"], agent.baselines["optimal"]
    return random + share * (optimal - random)


ROWS: Mapping[str, Row] = {
    "blackjack": Row("blackjack", -0.060, 20_000),
    "blackjack_reworded": Row(str(HERE / "reworded_blackjack.py"), -0.060, 20_000),
    "frozen_lake": Row("frozen_lake", 1.0, 1000, sampled=0.95),
    "frozen_lake_8x8": Row("frozen_lake_8x8", 1.0, 1000, sampled=0.95),
    "frozen_lake_maps": Row("frozen_lake_maps", 0.5, 1000, has_mlp=False),
    "frozen_lake_slippery": Row("frozen_lake_slippery", 0.70, 2000),
    "cliff_walking": Row("cliff_walking", -17.0, 200),
    "cart_pole": Row("cart_pole", 400.0, 100, turns=300_000),
    "acrobot": Row("acrobot", -150.0, 100),
    "taxi": Row("taxi", 0.0, 300),
    "taxi_warm": Row("taxi", 5.0, 300, demonstrations=MOST_DEMONSTRATIONS),
    "mountain_car_warm": Row("mountain_car", -130.0, 100, demonstrations=MOST_DEMONSTRATIONS),
    "babyai_grey_warm": Row(
        "BabyAI-GoToRedBallGrey-v0", 0.85, 500, demonstrations=MOST_DEMONSTRATIONS
    ),
    "textworld": Row("textworld", 7.7, 50, has_mlp=False),
    "coin_collector": Row("tw-coin_collector", 0.95, 50, env={"level": 5}, has_mlp=False),
    "treasure_warm": Row(
        "tw-treasure_hunter",
        0.9,
        50,
        env={"level": 5},
        demonstrations=MOST_DEMONSTRATIONS,
        has_mlp=False,
    ),
    "kitchen": Row("kitchen", 0.8 * KitchenAgent.baselines["optimal"], 1000),
    "greenhouse": held_out(GreenhouseAgent, "greenhouse", 500),
    "abbey": held_out(AbbeyAgent, "abbey", 500),
    "tide": held_out(TideAgent, "tide", 1000),
    "tank": of_stranger(TankAgent, "tank"),
    "post": of_stranger(PostAgent, "post"),
    "stall": of_stranger(StallAgent, "stall"),
}
"""By their names, the held-out worlds and those of strangers last."""
