"""Demonstrations as text: one episode with its faults, and counts of many."""

from collections import Counter
from collections.abc import Sequence

from textual.content import Content

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.demos.rows import Row
from llamagym_tui.screens.widgets.literal import literal_content
from llamagym_tui.screens.widgets.numbers import bar, number, share
from llamagym_tui.state.transcript import clipped

ASIDE = "$foreground 60%"
SPEAKERS = {"system": "system", "user": "env", "assistant": "agent"}
MAX_MESSAGES = 600
"""Messages of an episode that are shown."""
MAX_RETURNS = 6
"""Different returns that are counted one by one; of more, only the range is shown."""
GUTTER = 8
"""Cells of the labels."""


def episode_text(row: Row, agent: AgentBase, width: int) -> Content:
    """The conversation of a row, its faults first; messages are wrapped next to their labels at `width` cells."""
    parts = [Content.styled(f"✗ {one_line(fault)}", "$text-error") for fault in row.faults]
    if row.other_prompt:
        parts.append(Content.styled("≠ recorded under another system prompt than the present one", "$text-warning"))
    demo = row.demo
    if demo is None:
        return Content("\n").join([*parts, literal_content(clipped(row.content.decode("utf-8", "replace")))])
    parts.append(_heading(row, demo))
    turn = 0
    for message in demo.messages[:MAX_MESSAGES]:
        role = message["role"]
        by_person = role == "assistant" and (demo.source == "human" or turn in demo.corrected)
        label = "you" if by_person else SPEAKERS[role]
        style = "bold $primary" if role == "assistant" else ASIDE
        parts.append(_message(Content.styled(f"{label:<{GUTTER}}", style), clipped(message["content"]), width))
        if role == "assistant":
            if turn < len(demo.actions) and turn < len(demo.rewards):
                parts.append(_turn(demo, turn, agent))
            if turn in demo.corrected:
                instead = Content.styled(f"{'instead':<{GUTTER}}", ASIDE)
                parts.append(_message(instead, f"the agent: {clipped(demo.corrected[turn])}", width))
            turn += 1
    if len(demo.messages) > MAX_MESSAGES:
        parts.append(Content.styled(f"… {len(demo.messages) - MAX_MESSAGES:,} more messages", ASIDE))
    parts.append(Content.styled(f"return  {number(demo.episode_return)} · {one_line(demo.end)}", "bold"))
    return Content("\n").join(parts)


def summary_text(rows: Sequence[Row], agent: AgentBase) -> Content:
    """Episodes by source and by return, turns by action; a line each."""
    demos = [row.demo for row in rows if row.demo is not None]
    sources = Counter(one_line(demo.source) for demo in demos).most_common()
    actions = Counter(one_line(agent.action_name(action)) for demo in demos for action in demo.actions)
    turns, most = actions.total(), max(actions.values(), default=0)
    lines = {
        "sources": " · ".join(f"{name} {count:,}" for name, count in sources),
        "returns": _returns([demo.episode_return for demo in demos]),
        "actions": " · ".join(f"{name} {bar(n / most)} {share(n / turns, 0)}" for name, n in actions.most_common()),
    }
    return Content("\n").join(Content.assemble((f"{name:<9}", ASIDE), text or "–") for name, text in lines.items())


def _message(label: Content, text: str, width: int) -> Content:
    lines = literal_content(text).wrap(max(1, width - GUTTER))
    indent = Content(" " * GUTTER)
    return Content("\n").join([(indent if index else label) + line for index, line in enumerate(lines)])


def _heading(row: Row, demo: Demonstration) -> Content:
    played = f"{one_line(demo.source)} ({one_line(demo.model)})" if demo.model else one_line(demo.source)
    seed = "" if demo.seed is None else f" · seed {demo.seed}"
    return Content.styled(f"── line {row.line:,} · {played} · {one_line(demo.recorded_at)}{seed}", ASIDE)


def _turn(demo: Demonstration, turn: int, agent: AgentBase) -> Content:
    name = one_line(agent.action_name(demo.actions[turn]))
    return Content.assemble(("action  ", ASIDE), (name, "bold"), (f" · reward {number(demo.rewards[turn])}", ASIDE))


def _returns(returns: list[float]) -> str:
    if not returns:
        return ""
    mean = f"mean {number(sum(returns) / len(returns), 3)}"
    counted = Counter(returns)
    if len(counted) > MAX_RETURNS:
        return f"{mean} · from {number(min(returns))} to {number(max(returns))}"
    most = max(counted.values())
    bars = (f"{number(value)} {bar(n / most)} {n:,}" for value, n in sorted(counted.items(), reverse=True))
    return " · ".join([mean, *bars])
