"""A fault in the constructor of a user's agent is told with its file and line, whoever makes the agent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llamagym_tui.cli.main import app
from llamagym_tui.errors import AgentFileError
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.trainer.builders import Builders

FILE = """
import argparse, sys
from llamagym_tui import Agent

class Mine(Agent):
    env_id = "Blackjack-v1"

    def get_system_prompt(self): return "Play."

    def format_observation(self, observation): return str(observation)

    def __init__(self):
        {first}
        super().__init__()
"""


def agent_file(folder: Path, first: str) -> str:
    path = folder / "mine.py"
    path.write_text(FILE.format(first=first))
    return str(path)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("open('/no/such')", "FileNotFoundError: .*'/no/such'"),
        ("sys.exit('gone')", "SystemExit: gone"),
        ("argparse.ArgumentParser(prog='mine').parse_args(['--size'])", "SystemExit: 2"),
    ],
)
def test_a_constructor_that_fails_or_ends_the_program_is_told_with_file_and_line(
    tmp_path: Path, first: str, why: str
) -> None:
    spec = agent_file(tmp_path, first)
    expected = rf"^Mine cannot be made: .*{why}.* \({re.escape(spec)}, line 13\); "
    config = RunConfig(agent=spec, run_dir=str(tmp_path))
    for makes in (lambda: RunAgent(spec).agent, Builders(config).agent):
        with pytest.raises(AgentFileError, match=expected):
            makes()


@pytest.mark.parametrize(
    "command",
    [
        ["train", "FILE", "--episodes", "1"],
        ["eval", "FILE", "--episodes", "1"],
        ["demos", "generate", "FILE", "--episodes", "1", "--output", "OUT"],
    ],
)
def test_a_method_that_ends_the_program_is_told_with_file_and_line(
    tmp_path: Path, command: list[str]
) -> None:
    spec = agent_file(tmp_path, "pass")
    path = Path(spec)
    ends = path.read_text().replace('return "Play."', "sys.exit('no licence')")
    path.write_text(f"{ends}\n    def expert(self, observation): return 0\n")
    words = {"FILE": spec, "OUT": str(tmp_path / "demos.jsonl")}
    ended = CliRunner().invoke(app, [words.get(word, word) for word in command])
    assert ended.exit_code in (1, 2)
    assert f"SystemExit: no licence ({spec}, line 8)." in ended.stderr
