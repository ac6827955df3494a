"""Demonstrations to train on: only from a file in which `demos check` finds no fault."""

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
"""Package of the agents that ship, with the dot after it."""


class TrainingData(NamedTuple):
    """The demonstrations of a file without faults."""

    path: Path
    demonstrations: list[Demonstration]
    method: Literal["sft", "dpo"]
    """How they are learnt from: ``sft`` from conversations, ``dpo`` from preferences."""

    @property
    def conversations(self) -> list[Conversation]:
        """What supervised training learns from."""
        return [demo.lesson for demo in self.demonstrations]

    @property
    def preferences(self) -> list[Preference]:
        """The corrected replies of all episodes, each preferred to the model's own."""
        found: list[Preference] = []
        for demo in self.demonstrations:
            found.extend(demo.preferences)
        return found


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
    """The file of demonstrations that ships for an agent; None: there is none."""
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
"""Most actions that are counted one by one in a line."""
LONGEST_EXAMPLE = 60
"""Most characters of a reply that is shown as an example."""


def training_facts(data: TrainingData, agent: AgentBase, system_prompt: str) -> DemonstrationsRead:
    """What there is to learn from demonstrations, for a run with a system prompt; turns that are not trained on do not
    count."""
    counts = Counter[str]()
    turns = 0
    free_replies = []
    for demo in data.demonstrations:
        for turn, (action, reply) in enumerate(zip(demo.actions, demo.replies, strict=True)):
            if demo.corrected and turn not in demo.corrected:
                continue
            turns += 1
            counts[agent.action_name(action)] += 1
            if not _is_plain(agent, action, reply):
                free_replies.append(reply)
    actions = dict.fromkeys(agent.action_names, 0)
    actions |= dict(counts.most_common())  # also those that the agent does not list
    prompts = [demo.system_prompt for demo in data.demonstrations]
    return DemonstrationsRead(
        path=str(data.path),
        episodes=len(data.demonstrations),
        turns=turns,
        actions=actions,
        prompts=len(set(prompts)),
        under_present_prompt=prompts.count(system_prompt),
        free_replies=len(free_replies),
        free_reply=free_replies[0][:LONGEST_EXAMPLE] if free_replies else "",
        preferences=len(data.preferences),
    )


def doubts(facts: DemonstrationsRead, method: Literal["sft", "dpo"] = "sft") -> list[str]:
    """What speaks against training on the demonstrations, a sentence each."""
    found = _doubts_of_imitation(facts) if method == "sft" else []
    other = facts.episodes - facts.under_present_prompt
    if other:
        found.append(
            f"{other:,} of {facts.episodes:,} demonstrations were recorded under another system prompt than the run's, "
            "and teach how to play under that one."
        )
    return found


def _doubts_of_imitation(facts: DemonstrationsRead) -> list[str]:
    """What speaks against supervised training alone, a sentence each."""
    found = []
    if facts.episodes < FEW and facts.turns < MANY_TURNS:
        few = "1 episode is" if facts.episodes == 1 else f"{facts.episodes:,} episodes are"
        found.append(
            f"{few} few: below about {FEW} they are learnt by heart, and what the model can do may be lost."
        )
    if facts.turns and facts.actions:
        name = max(facts.actions, key=lambda action: facts.actions[action])
        share = facts.actions[name] / facts.turns
        if share >= ONE_SIDED:
            found.append(
                f"{share:.0%} of the turns are {name}: other actions may hardly be chosen afterwards."
            )
    if facts.free_replies:
        found.append(
            f"{facts.free_replies:,} of {facts.turns:,} replies are more than their action, as {facts.free_reply!r}: "
            "later ones may name no action."
        )
    return found


def fact_lines(facts: DemonstrationsRead) -> dict[str, str]:
    """The figures in words, by their names."""
    most_first = sorted(facts.actions.items(), key=lambda item: -item[1])
    actions = [
        f"{name} {count:,} ({count / max(facts.turns, 1):.0%})"
        for name, count in most_first[:MOST_ACTIONS]
    ]
    if len(most_first) > MOST_ACTIONS:
        actions.append(f"{len(most_first) - MOST_ACTIONS} more")
    free_text = "none"
    if facts.free_replies:
        free_text = f"{facts.free_replies:,} of {facts.turns:,} replies"
    return {
        "episodes": f"{facts.episodes:,}, every line readable",
        "turns": f"{facts.turns:,}",
        "actions": " · ".join(actions),
        "prompts": _prompts_text(facts),
        "free text": free_text,
    }


def _prompts_text(facts: DemonstrationsRead) -> str:
    """Under which prompts the episodes were recorded, and in how many of them it was the run's present one."""
    if facts.under_present_prompt == facts.episodes:
        return "recorded under this prompt"
    if facts.under_present_prompt:
        present = f"this one in {facts.under_present_prompt:,} of {facts.episodes:,} episodes"
        return f"recorded under {facts.prompts:,} prompts, {present}"
    others = "another prompt" if facts.prompts == 1 else f"{facts.prompts:,} other prompts"
    return f"recorded under {others}"


def _is_plain(agent: AgentBase, action: Any, reply: str) -> bool:
    """Whether a reply only names the action, in the agent's own form but with any spaces."""
    return "".join(reply.split()) == "".join(agent.format_action(action).split())
