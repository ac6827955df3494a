"""Every small environment of Gymnasium, 21 of minigrid, and the worlds that ship, as commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import gymnasium
import pytest

from llamagym_tui.setup import catalog
from tests.e2e.test_headless import ENVIRONMENT, command, only_line

SMALL = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
IDS = sorted(
    env_id
    for env_id, spec in gymnasium.registry.items()
    if str(spec.entry_point).startswith(SMALL) and not spec.namespace and env_id != "CartPole-v0"
)
CONTINUOUS = ["MountainCarContinuous-v0", "Pendulum-v1"]
MINIGRID = [
    "BabyAI-BossLevel-v0",
    "BabyAI-FindObjS5-v0",
    "BabyAI-GoToLocal-v0",
    "BabyAI-GoToObjMaze-v0",
    "BabyAI-KeyInBox-v0",
    "BabyAI-OpenDoorsOrderN2-v0",
    "BabyAI-PickupLoc-v0",
    "BabyAI-PutNextLocal-v0",
    "BabyAI-SynthSeq-v0",
    "BabyAI-UnlockPickup-v0",
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-Dynamic-Obstacles-5x5-v0",
    "MiniGrid-Empty-Random-5x5-v0",
    "MiniGrid-Fetch-5x5-N2-v0",
    "MiniGrid-FourRooms-v0",
    "MiniGrid-GoToDoor-5x5-v0",
    "MiniGrid-KeyCorridorS3R1-v0",
    "MiniGrid-LavaGapS5-v0",
    "MiniGrid-MemoryS7-v0",
    "MiniGrid-RedBlueDoors-6x6-v0",
    "MiniGrid-Unlock-v0",
]


def ran(agent: str, folder: Path) -> subprocess.CompletedProcess[str]:
    limits = (
        "--episodes",
        64,
        "--envs",
        64,
        "--set",
        "max_turns=12",
        "--final-episodes",
        0,
        "--threads",
        1,
    )
    words = command("train", agent, *limits, "--run-dir", folder / "run", "--json")
    return subprocess.run(
        words, capture_output=True, text=True, timeout=900, env=ENVIRONMENT, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("agent", sorted({*IDS, *MINIGRID, *catalog.built_in()} - {*CONTINUOUS}))
def test_sixty_four_episodes_are_played_and_none_is_dropped(agent: str, tmp_path: Path) -> None:
    run = ran(agent, tmp_path)
    assert run.returncode == 0, run.stderr
    figures = only_line(run.stdout)
    assert (figures["episodes"], figures["dropped"]) == (64, 0)


@pytest.mark.parametrize("agent", CONTINUOUS)
def test_a_run_with_continuous_actions_exits_2_with_a_sentence(agent: str, tmp_path: Path) -> None:
    run = ran(agent, tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert f"{agent} takes actions from Box" in run.stderr
    assert "def wrap_env(self, env):" in run.stderr
    assert not (tmp_path / "run").exists()


def test_every_kind_of_them_is_played() -> None:
    assert len(IDS) == 11
