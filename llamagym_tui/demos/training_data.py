"""Demonstrations that may be trained on: the file that was named, or the one that ships for the agent, checked whole.

A file in which `demos check` finds a fault, or whose replies the agent reads as other actions, is never trained on.
"""

from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.errors import DemoFileError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import Conversation

AGENTS = "llamagym_tui.agents."
"""Package of the agents that ship."""


class TrainingData(NamedTuple):
    """A file without faults."""

    path: Path
    demonstrations: list[Demonstration]

    @property
    def conversations(self) -> list[Conversation]:
        """The conversations with their weights, as `sft` takes them."""
        return [demo.lesson for demo in self.demonstrations]


def training_data(agent: AgentBase, path: str | Path | None = None) -> TrainingData:
    """Read demonstrations to train an agent on; without a path, those that ship for it.

    Raises:
        UsageError: none ships for this agent, or the file is not there.
        DemoFileError: the file has a fault; the message names the first one and its line.
    """
    place = shipped(agent) if path is None else Path(path).expanduser()
    if place is None:
        raise UsageError(
            f"No demonstrations ship for {type(agent).__name__}: name a file (--sft-data, or sft_data=), "
            "recorded in the playground or made by `llamagym-tui demos generate`."
        )
    if not place.exists():
        raise UsageError(f"There is no file of demonstrations {place}; `llamagym-tui demos list` shows yours.")
    faults = demo_files.check(place, agent)
    if faults:
        more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
        raise DemoFileError(
            f"{place}, line {faults[0].line}: {faults[0].sentence.rstrip('.')}{more}; nothing was trained: "
            f"correct the file; `llamagym-tui demos check {place}` lists what is wrong."
        )
    found = demo_files.read(place)
    for number, demo in enumerate(found, start=1):
        if demo.env_id != agent.env_id:
            raise DemoFileError(
                f"{place}, line {number}: the episode is of {demo.env_id}, and {type(agent).__name__} plays "
                f"{agent.env_id}; nothing was trained: name a file of this environment."
            )
    return TrainingData(place, found)


def shipped(agent: AgentBase) -> Path | None:
    """None if no file ships for this agent."""
    module = type(agent).__module__
    if not module.startswith(AGENTS):
        return None
    path = Path(str(files("llamagym_tui.sft_data"))) / f"{module.removeprefix(AGENTS)}.jsonl"
    return path if path.is_file() else None
