"""A file whose observations the agent words otherwise now: a warning by its line, and no fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.cli.main import app
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.expert_play import expert_episodes
from llamagym_tui.demos.wording import reworded
from llamagym_tui.run_store import utc_now


class Reworded(BlackjackAgent):
    """Words observations differently, except for blackjacks."""

    def format_observation(self, observation: Any) -> str:
        text = super().format_observation(observation)
        return text if observation[0] == 21 else text.replace("Your total", "Your hand")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "expert.jsonl"
    demo_files.write(path, expert_episodes(BlackjackAgent(), "blackjack", episodes=6, seed=5, clock=utc_now))
    return path


def test_unchanged_observations_give_no_warning(path: Path):
    assert reworded(path, BlackjackAgent()) == []


def test_each_episode_with_other_observations_is_reported_once_by_its_line(path: Path):
    first = [next(m["content"] for m in demo.messages if m["role"] == "user") for demo in demo_files.read(path)]
    found = reworded(path, Reworded())
    assert [warning.line for warning in found] == [
        number for number, text in enumerate(first, start=1) if not text.startswith("Your total: 21")
    ]
    assert found[0].sentence.startswith("Turn 1: the agent now writes 'Your hand: ")
    assert demo_files.check(path, Reworded()) == []


def test_lines_that_cannot_be_played_again_are_left_out(path: Path):
    demo_files.write(path, [replace(demo, seed=None) for demo in demo_files.read(path)])
    path.write_bytes(path.read_bytes() + b"{}\n")
    assert reworded(path, Reworded()) == []
    assert reworded(path, FrozenLakeAgent()) == []


def test_an_action_that_the_environment_refuses_ends_no_comparison(path: Path):
    first, *others = demo_files.read(path)
    before = [warning for warning in reworded(path, Reworded()) if warning.line > 1]
    demo_files.write(path, [replace(first, actions=[7] * len(first.actions)), *others])
    assert [warning for warning in reworded(path, Reworded()) if warning.line > 1] == before != []


def test_check_warns_and_reports_no_fault(path: Path, tmp_path: Path):
    agent = tmp_path / "mine.py"
    agent.write_text(
        "from llamagym_tui.agents.blackjack import BlackjackAgent\n"
        "class MyAgent(BlackjackAgent):\n"
        "    def format_observation(self, observation): return f'Cards: {observation}.'\n"
    )
    outcome = CliRunner().invoke(app, ["demos", "check", str(path), "--agent", str(agent)])
    assert outcome.exit_code == 0, outcome.output
    assert f"{path}:1: warning: Turn 1: the agent now writes 'Cards: " in outcome.output
    assert "6 episodes, nothing wrong" in outcome.output
