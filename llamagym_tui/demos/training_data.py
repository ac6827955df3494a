"""Demonstrations that may be trained on: a file in which `demos check` finds a fault never is."""

from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.errors import DemoFileError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import Conversation, Preference
from llamagym_tui.protocol.events import DemonstrationsRead

AGENTS = "llamagym_tui.agents."
"""Package of the agents that ship."""


class TrainingData(NamedTuple):
    """A file without faults."""

    path: Path
    demonstrations: list[Demonstration]
    method: Literal["sft", "dpo"]
    """What is learnt from: conversations, or preferences."""

    @property
    def conversations(self) -> list[Conversation]:
        return [demo.lesson for demo in self.demonstrations]

    @property
    def preferences(self) -> list[Preference]:
        return [pair for demo in self.demonstrations for pair in demo.preferences]


def training_data(
    agent: AgentBase, path: str | Path | None = None, method: Literal["sft", "dpo"] = "sft"
) -> TrainingData:
    """Read demonstrations to train an agent on; without a path, those that ship for it.

    Raises:
        UsageError: none ships for this agent, the file is not there, or it has no preferences to learn from (dpo).
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
    data = TrainingData(place, found, method)
    if method == "dpo" and not data.preferences:
        raise UsageError(
            f"{place} has no reply that a person replaced, so nothing is preferred: correct some with w, at the wheel."
        )
    return data


def shipped(agent: AgentBase) -> Path | None:
    """None if no file ships for this agent."""
    module = type(agent).__module__
    if not module.startswith(AGENTS):
        return None
    path = Path(str(files("llamagym_tui.sft_data"))) / f"{module.removeprefix(AGENTS)}.jsonl"
    return path if path.is_file() else None


FEW, MANY_TURNS = 50, 1_000
"""Episodes below which they are learnt by heart, unless they have so many turns."""
ONE_SIDED = 0.9
"""Share of the turns from which on an action is nearly all that is learnt."""
MOST_ACTIONS = 6
"""Actions that are counted one by one in a line."""
LONGEST_EXAMPLE = 60
"""Characters of a reply that is shown as an example."""


def training_facts(data: TrainingData, agent: AgentBase, system_prompt: str) -> DemonstrationsRead:
    """What there is to learn from demonstrations, for a run under a system prompt; turns without loss are left out."""
    turns = [
        (action, reply)
        for demo in data.demonstrations
        for turn, (action, reply) in enumerate(zip(demo.actions, demo.replies, strict=True))
        if not demo.corrected or turn in demo.corrected
    ]
    named = Counter(agent.action_name(action) for action, _ in turns)
    free = [reply for action, reply in turns if not _is_plain(agent, action, reply)]
    return DemonstrationsRead(
        path=str(data.path),
        episodes=len(data.demonstrations),
        turns=len(turns),
        actions=dict.fromkeys(agent.action_names, 0) | dict(named.most_common()),
        prompts=len({demo.system_prompt for demo in data.demonstrations}),
        under_present_prompt=sum(
            demo.system_prompt == system_prompt for demo in data.demonstrations
        ),
        free_replies=len(free),
        free_reply=free[0][:LONGEST_EXAMPLE] if free else "",
        preferences=len(data.preferences),
    )


def doubts(facts: DemonstrationsRead, method: Literal["sft", "dpo"] = "sft") -> list[str]:
    """What speaks against training on them, a sentence each."""
    found = _doubts_of_imitation(facts) if method == "sft" else []
    if other := facts.episodes - facts.under_present_prompt:
        found.append(
            f"{other:,} of {facts.episodes:,} demonstrations were recorded under another system prompt than the run's, "
            "and teach how to play under that one."
        )
    return found


def _doubts_of_imitation(facts: DemonstrationsRead) -> list[str]:
    found = []
    if facts.episodes < FEW and facts.turns < MANY_TURNS:
        few = "1 episode is" if facts.episodes == 1 else f"{facts.episodes:,} episodes are"
        found.append(
            f"{few} few: below about {FEW} they are learnt by heart, and what the model can do may be lost."
        )
    name, most = max(facts.actions.items(), key=lambda item: item[1], default=("", 0))
    if facts.turns and most / facts.turns >= ONE_SIDED:
        found.append(
            f"{most / facts.turns:.0%} of the turns are {name}: other actions may hardly be chosen afterwards."
        )
    if facts.free_replies:
        found.append(
            f"{facts.free_replies:,} of {facts.turns:,} replies are more than their action, as {facts.free_reply!r}: "
            "later ones may name no action."
        )
    return found


def fact_lines(facts: DemonstrationsRead) -> dict[str, str]:
    """The figures in words, by their names."""
    shares = sorted(facts.actions.items(), key=lambda item: -item[1])
    actions = [
        f"{name} {count:,} ({count / max(facts.turns, 1):.0%})"
        for name, count in shares[:MOST_ACTIONS]
    ]
    more = [f"{len(shares) - MOST_ACTIONS} more"] if len(shares) > MOST_ACTIONS else []
    present = {0: "not the present one", facts.episodes: "the present one"}.get(
        facts.under_present_prompt,
        f"the present one in {facts.under_present_prompt:,} of {facts.episodes:,} episodes",
    )
    return {
        "episodes": f"{facts.episodes:,}, every line readable",
        "turns": f"{facts.turns:,}",
        "actions": " · ".join([*actions, *more]),
        "prompts": f"{facts.prompts:,}, {present}",
        "free text": f"{facts.free_replies:,} of {facts.turns:,} replies"
        if facts.free_replies
        else "none",
    }


def _is_plain(agent: AgentBase, action: Any, reply: str) -> bool:
    """Whether a reply is the action's canonical one, however it is spaced."""
    return "".join(reply.split()) == "".join(agent.format_action(action).split())
