"""Every environment of Gymnasium's classic control and toy text, by its id, and the worlds that ship, as commands."""

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


def ran(agent: str, folder: Path) -> subprocess.CompletedProcess[str]:
    limits = ("--episodes", 64, "--envs", 64, "--set", "max_turns=12", "--final-episodes", 0, "--threads", 1)
    words = command("train", agent, *limits, "--run-dir", folder / "run", "--json")
    return subprocess.run(words, capture_output=True, text=True, timeout=900, env=ENVIRONMENT, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("agent", sorted({*IDS, *catalog.built_in()} - {*CONTINUOUS}))
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
