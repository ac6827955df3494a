"""BabyAI and MiniGrid: words, offered actions and advice are those of the environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from minigrid.core import constants
from typer.testing import CliRunner

from llamagym_tui.agents import babyai
from llamagym_tui.cli.main import app
from llamagym_tui.errors import UsageError
from llamagym_tui.game.drawing import drawn
from llamagym_tui.game.environment import agent_env, turn_limit
from llamagym_tui.game.observed import expert_action
from llamagym_tui.screens.past_runs.home import agent_text
from llamagym_tui.setup import catalog

LEVELS = [
    "GoToLocal",
    "OpenTwoDoors",
    "PickupLoc",
    "PutNextLocal",
    "UnlockLocal",
    "GoToObjMazeS4R2",
]
WORLDS = [
    "BabyAI-KeyInBox-v0",
    "BabyAI-UnlockLocal-v0",
    "MiniGrid-Fetch-5x5-N2-v0",
    "MiniGrid-LavaGapS5-v0",
]


def made(env_id: str) -> tuple[Any, gymnasium.Env[Any, Any]]:
    agent = catalog.find_agent(env_id)()
    return agent, agent_env(agent)


def view(**tiles: tuple[int, int, int]) -> dict[str, Any]:
    """Floor all around, but for tiles by their names: ``a2r1`` is 2 ahead and 1 right."""
    image = np.zeros((7, 7, 3), dtype=np.uint8)
    image[:, :, 0] = 1
    for name, tile in tiles.items():
        ahead, right = int(name[1]), int(name[3]) * (1 if name[2] == "r" else -1)
        image[3 + right, 6 - ahead] = tile
    return {"image": image, "direction": 0, "mission": "open the red door"}


KEY, WALL, LOCKED, BOX = (5, 0, 0), (2, 5, 0), (4, 0, 2), (7, 4, 0)


def test_numbers_of_tiles_are_minigrids() -> None:
    assert {name: n for n, name in enumerate(babyai.OBJECTS)} == constants.OBJECT_TO_IDX
    assert {name: n for n, name in enumerate(babyai.COLOURS)} == constants.COLOR_TO_IDX
    assert {name: n for n, name in enumerate(babyai.DOORS)} == constants.STATE_TO_IDX


def test_a_view_in_words_and_drawn() -> None:
    agent, shown = (
        babyai.BabyAIAgent(),
        view(a0r0=KEY, a3r0=LOCKED, a1l2=BOX, a0r1=WALL, a6r3=(9, 0, 0)),
    )
    assert agent.format_observation(shown) == (
        "Mission: open the red door. Free: 2 ahead, 3 left, 0 right. You see yellow box 1 ahead 2 left, "
        "locked red door 3 ahead, lava 6 ahead 3 right. You carry a red key."
    )
    lines = [line.rstrip() for line in drawn(agent, None, shown).text.split("\n")]
    assert lines[0] == "· · · · · · ~   open the red door"
    assert lines[1] == "· · · · · · ·   carries a red key"
    assert lines[3].startswith("· · · + · · ·")
    assert lines[5].startswith("· B · · · · ·")
    assert lines[6] == "· · · ^ # · ·"


@pytest.mark.parametrize(
    ("tiles", "offered"),
    [
        ({}, ["go forward"]),
        ({"a1r0": WALL}, []),
        ({"a1r0": KEY}, ["pick up"]),
        ({"a1r0": KEY, "a0r0": BOX}, []),
        ({"a0r0": KEY}, ["go forward", "drop"]),
        ({"a1r0": LOCKED}, []),
        ({"a1r0": LOCKED, "a0r0": KEY}, ["open"]),
        ({"a1r0": LOCKED, "a0r0": (5, 1, 0)}, []),
        ({"a1r0": (6, 0, 0), "a0r0": KEY}, []),
        ({"a1r0": (4, 0, 1)}, ["open"]),
        ({"a1r0": (4, 0, 0)}, ["go forward", "open"]),
        ({"a1r0": BOX}, ["pick up", "open"]),
        ({"a1r0": (9, 0, 0)}, ["go forward"]),
    ],
)
def test_what_can_be_done_is_offered(
    tiles: dict[str, tuple[int, int, int]], offered: list[str]
) -> None:
    assert babyai.BabyAIAgent().actions(view(**tiles)) == ["turn left", "turn right", *offered]


@pytest.mark.parametrize("level", LEVELS)
def test_the_expert_does_each_mission_by_what_is_offered(
    level: str,
) -> None:
    agent, env = made(f"BabyAI-{level}-v0")
    for seed in range(2):
        (observation, info), over, turn = env.reset(seed=seed), False, 0
        while not over:
            action = expert_action(agent, observation, info, env)
            offered = [agent.action_names.index(name) for name in agent.actions(observation)]
            assert action in offered
            observation, reward, terminated, truncated, info = env.step(action)
            over, turn = terminated or truncated, turn + 1
        assert reward > 0


def test_any_id_of_minigrid_goes_to_the_agent() -> None:
    for spec in ("MiniGrid-DoorKey-5x5-v0", "minigrid:MiniGrid-DoorKey-5x5-v0"):
        agent = catalog.find_agent(spec, {"size": 6})
        assert issubclass(agent, babyai.BabyAIAgent)
        assert (agent.env_id, agent.env_kwargs) == ("minigrid:MiniGrid-DoorKey-5x5-v0", {"size": 6})
        assert (agent.title, agent.baselines, agent().policy_map()) == (
            "MiniGrid-DoorKey-5x5-v0",
            {},
            None,
        )
    assert made("MiniGrid-DoorKey-5x5-v0")[0].expert(None, {}, None) is None
    assert turn_limit(made("MiniGrid-DoorKey-5x5-v0")[1]) == 250
    obstacles, env = made("MiniGrid-Dynamic-Obstacles-5x5-v0")
    assert len(obstacles.action_names) == env.action_space.n == 3
    assert "finish" in made("MiniGrid-GoToDoor-5x5-v0")[0].actions(view())
    with pytest.raises(
        UsageError,
        match=r"no agent named 'BabyAI-GoToRedBal-v0'; did you mean BabyAI-GoToRedBall-v0",
    ):
        catalog.find_agent("BabyAI-GoToRedBal-v0")


def test_without_minigrid_its_agent_is_listed_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "find_spec", lambda name: None)
    line = "pip install 'llamagym-tui[minigrid]'"
    for spec in ("babyai", "MiniGrid-DoorKey-5x5-v0"):
        refused = CliRunner().invoke(app, ["train", spec])
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert (
            refused.stderr
            == f"llamagym-tui: {spec} needs the package minigrid, which is not installed: {line}.\n"
        )
    assert f"Not installed: {line}." in CliRunner().invoke(app, ["agents"]).stdout
    assert line in agent_text("babyai", catalog.built_in()["babyai"]).plain
