"""Demonstrations to train on: only from a file in which `demos check` finds no fault."""

from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.faults import faults
from llamagym_tui.demos.files import lines_of
from llamagym_tui.errors import DemoFileError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import Conversation, Preference
from llamagym_tui.protocol.events import DemonstrationsRead
from llamagym_tui.state.returns import counted

AGENTS = "llamagym_tui.agents."
"""Package of the agents that ship, with the dot after it."""


class TrainingData(NamedTuple):
    """The demonstrations of a file without faults."""

    path: Path
    demonstrations: list[Demonstration]
    method: Literal["sft", "dpo"]
    """``sft`` learns from conversations, ``dpo`` from preferences."""

    @property
    def conversations(self) -> list[Conversation]:
        """The conversations of supervised training."""
        return [demo.lesson for demo in self.demonstrations]

    @property
    def preferences(self) -> list[Preference]:
        """The corrected replies of all episodes, each preferred to the model's own."""
        return [each for demo in self.demonstrations for each in demo.preferences]


def training_data(
    agent: AgentBase, path: str | Path | None = None, method: Literal["sft", "dpo"] = "sft"
) -> TrainingData:
    """Read demonstrations to train an agent on; without a path, those that ship for it.

    Raises:
        UsageError: none ship for this agent, the file is not there, or it has no preferences for ``dpo``.
        DemoFileError: the file has a fault; the message names the first one and its line.
    """
    place = shipped(agent) if path is None else Path(path).expanduser()
    if place is None:
        raise UsageError(
            f"No demonstrations ship for {type(agent).__name__}: name a file (--sft-data, or sft_data=), "
            "recorded in the playground or made by `llamagym-tui demos generate`."
        )
    if not place.exists():
        raise UsageError(
            f"There is no file of demonstrations {place}; `llamagym-tui demos list` shows yours."
        )
    lines = list(lines_of(place))
    for fault in faults(lines, agent):
        raise DemoFileError(
            f"{place}, line {fault.line}: {fault.sentence.rstrip('.')}; nothing was trained: "
            f"correct the file; `llamagym-tui demos check {place}` lists what is wrong."
        )
    found = [line.demo for line in lines if line.demo is not None]
    for other in {demo.env_id for demo in found} - {agent.env_id}:
        raise DemoFileError(
            f"{place} has episodes of {other}, and {type(agent).__name__} plays {agent.env_id}; nothing was trained: "
            "name a file of this environment."
        )
    data = TrainingData(place, found, method)
    if method == "dpo" and not data.preferences:
        raise UsageError(
            f"{place} has no reply that a person replaced, so nothing is preferred: correct some with w, at the wheel."
        )
    return data


def shipped(agent: AgentBase) -> Path | None:
    """The file of demonstrations that ships for an agent, if there is one."""
    module = type(agent).__module__
    if not module.startswith(AGENTS):
        return None
    path = Path(str(files("llamagym_tui.sft_data"))) / f"{module.removeprefix(AGENTS)}.jsonl"
    return path if path.is_file() else None


FEW = 50
"""Fewer episodes are learnt by heart, unless they have `MANY_TURNS`."""
MANY_TURNS = 1_000
"""Turns that are enough even in a few episodes."""
ONE_SIDED = 0.9
"""If an action has at least this share of the turns, hardly anything else is learnt."""
MOST_ACTIONS = 6
"""Most actions that are named in a line."""


def training_facts(data: TrainingData, agent: AgentBase, system_prompt: str) -> DemonstrationsRead:
    """The figures of demonstrations, for a run with a system prompt; turns that are not trained on do not count."""
    counts = Counter[str]()
    for demo in data.demonstrations:
        for turn, action in enumerate(demo.actions):
            if not demo.replaced_replies or turn in demo.replaced_replies:
                counts[agent.action_name(action)] += 1
    prompts = [demo.system_prompt for demo in data.demonstrations]
    return DemonstrationsRead(
        path=str(data.path),
        episodes=len(data.demonstrations),
        turns=counts.total(),
        actions=dict.fromkeys(agent.action_names, 0) | dict(counts.most_common()),
        under_present_prompt=prompts.count(system_prompt),
        preferences=len(data.preferences),
    )


def doubts(facts: DemonstrationsRead, method: Literal["sft", "dpo"] = "sft") -> list[str]:
    """Reasons against training on the demonstrations, a sentence each."""
    found = []
    if method == "sft" and facts.episodes < FEW and facts.turns < MANY_TURNS:
        found.append(
            f"{counted(facts.episodes, 'episode')} may be learnt by heart, and what the model can do may be lost: play "
            f"at least {FEW}."
        )
    if method == "sft" and facts.turns and facts.actions:
        name = max(facts.actions, key=lambda action: facts.actions[action])
        share = facts.actions[name] / facts.turns
        if share >= ONE_SIDED:
            found.append(
                f"{share:.0%} of the turns are {name}: other actions may hardly be chosen afterwards."
            )
    if other := facts.episodes - facts.under_present_prompt:
        found.append(
            f"{other:,} of {facts.episodes:,} demonstrations were recorded under another system prompt than the run's, "
            "and teach how to play under that one."
        )
    return found


def fact_lines(facts: DemonstrationsRead) -> dict[str, str]:
    """The figures in words, by their names."""
    ranked = sorted(facts.actions.items(), key=lambda item: -item[1])
    actions = [f"{name} {count:,} ({count / max(facts.turns, 1):.0%})" for name, count in ranked]
    return {
        "episodes": f"{facts.episodes:,}",
        "turns": f"{facts.turns:,}",
        "actions": " · ".join(actions[:MOST_ACTIONS]),
    }
