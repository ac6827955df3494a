"""What a warm start would train on, in figures, and what speaks against it: few episodes, one action, other prompts,
free text.

A policy learns these things whether they are meant or not. One hand and one honest sentence have taken a small model's
parse failures from 0 to 16 %.
"""

from collections import Counter
from typing import Any

from llamagym_tui.demos.training_data import TrainingData
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.events import DemonstrationsRead

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
        under_present_prompt=sum(demo.system_prompt == system_prompt for demo in data.demonstrations),
        free_replies=len(free),
        free_reply=free[0][:LONGEST_EXAMPLE] if free else "",
    )


def doubts(facts: DemonstrationsRead) -> list[str]:
    """What speaks against training on them, a sentence each."""
    found = []
    if facts.episodes < FEW and facts.turns < MANY_TURNS:
        few = "1 episode is" if facts.episodes == 1 else f"{facts.episodes:,} episodes are"
        found.append(f"{few} few: below about {FEW} they are learnt by heart, and what the model can do may be lost.")
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
    if other := facts.episodes - facts.under_present_prompt:
        found.append(
            f"{other:,} of {facts.episodes:,} demonstrations were recorded under another system prompt than the run's, "
            "and teach how to play under that one."
        )
    return found


def fact_lines(facts: DemonstrationsRead) -> dict[str, str]:
    """The figures in words, by their names."""
    shares = sorted(facts.actions.items(), key=lambda item: -item[1])
    actions = [f"{name} {count:,} ({count / max(facts.turns, 1):.0%})" for name, count in shares[:MOST_ACTIONS]]
    more = [f"{len(shares) - MOST_ACTIONS} more"] if len(shares) > MOST_ACTIONS else []
    present = {0: "not the present one", facts.episodes: "the present one"}.get(
        facts.under_present_prompt, f"the present one in {facts.under_present_prompt:,} of {facts.episodes:,} episodes"
    )
    return {
        "episodes": f"{facts.episodes:,}, every line readable",
        "turns": f"{facts.turns:,}",
        "actions": " · ".join([*actions, *more]),
        "prompts": f"{facts.prompts:,}, {present}",
        "free text": f"{facts.free_replies:,} of {facts.turns:,} replies" if facts.free_replies else "none",
    }


def _is_plain(agent: AgentBase, action: Any, reply: str) -> bool:
    """Whether a reply is the action's canonical one, however it is spaced."""
    return "".join(reply.split()) == "".join(agent.format_action(action).split())
