"""The rows of the table of worlds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

STRANGERS = Path(__file__).with_name("strangers")


class Row(NamedTuple):
    """A world of the table."""

    agent: str
    """As of `train`."""
    episodes: int
    """Of each evaluation."""
    env: Mapping[str, Any] = {}
    """Keyword arguments of the environment."""


ROWS: Mapping[str, Row] = {
    "blackjack": Row("blackjack", 20_000),
    "frozen_lake": Row("frozen_lake", 1000),
    "frozen_lake_8x8": Row("frozen_lake_8x8", 1000),
    "frozen_lake_maps": Row("frozen_lake_maps", 1000),
    "frozen_lake_slippery": Row("frozen_lake_slippery", 2000),
    "cliff_walking": Row("cliff_walking", 200),
    "cart_pole": Row("cart_pole", 100),
    "acrobot": Row("acrobot", 100),
    "taxi": Row("taxi", 300),
    "mountain_car": Row("mountain_car", 100),
    "babyai": Row("BabyAI-GoToRedBallGrey-v0", 500),
    "textworld": Row("textworld", 50),
    "coin_collector": Row("tw-coin_collector", 50, env={"level": 5}),
    "kitchen": Row("kitchen", 1000),
    "tank": Row(str(STRANGERS / "tank.py"), 300),
    "post": Row(str(STRANGERS / "post.py"), 300),
    "stall": Row(str(STRANGERS / "stall.py"), 300),
}
"""By their names, the worlds of strangers last."""
