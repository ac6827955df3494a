"""Demonstrations as text: one episode with what is wrong with it, and many of them counted."""

from __future__ import annotations

from textual.content import Content

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.screens.demos.book import Row, Summary
from llamagym_tui.screens.widgets.literal import literal_content, one_line
from llamagym_tui.screens.widgets.numbers import number, share
from llamagym_tui.state.transcript import clipped

ASIDE = "$foreground 60%"
SPEAKERS = {"system": "system", "user": "env", "assistant": "agent"}
MAX_MESSAGES = 600
"""Messages of an episode that are shown."""
MAX_RETURNS = 6
"""Returns that are counted one by one; where there are more, their range is told."""
GUTTER = 8
"""Cells of the labels."""
BAR = 12
"""Cells of the longest bar."""


def episode_text(row: Row, agent: AgentBase, width: int) -> Content:
    """The conversation of a row, with its faults first.

    Args:
        row: the episode.
        agent: names the actions.
        width: cells that there are; messages are wrapped beside their labels.
    """
    parts = [Content.styled(f"✗ {one_line(fault)}", "$text-error") for fault in row.faults]
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


def summary_text(counted: Summary) -> Content:
    """Sources, returns and actions, a row each."""
    rows = [
        ("sources", " · ".join(f"{one_line(name)} {count:,}" for name, count in counted.sources.items())),
        ("returns", _returns(counted)),
        ("actions", _actions(counted)),
    ]
    lines = [Content.assemble((f"{name:<9}", ASIDE), text or "–") for name, text in rows]
    return Content("\n").join(lines)


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


def _returns(counted: Summary) -> str:
    if not counted.returns:
        return ""
    mean = f"mean {number(counted.mean_return, 3)}"
    if len(counted.returns) > MAX_RETURNS:
        best, worst = next(iter(counted.returns)), next(reversed(counted.returns))
        return f"{mean} · from {number(worst)} to {number(best)}"
    most = max(counted.returns.values())
    bars = [f"{number(value)} {_bar(count, most)} {count:,}" for value, count in counted.returns.items()]
    return f"{mean} · " + " · ".join(bars)


def _actions(counted: Summary) -> str:
    turns = sum(counted.actions.values())
    most = max(counted.actions.values(), default=0)
    return " · ".join(
        f"{one_line(name)} {_bar(count, most)} {share(count / turns, 0)}" for name, count in counted.actions.items()
    )


def _bar(count: int, most: int) -> str:
    return "█" * max(1, round(BAR * count / most))
