"""A file of demonstrations as rows: episodes with their faults, and their table."""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from textual.content import Content

from llamagym_tui.demos.demonstration import Demonstration, readable
from llamagym_tui.demos.faults import faults
from llamagym_tui.demos.files import lines_of
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import bar, number, share
from llamagym_tui.screens.widgets.table_list import Column, TableList
from llamagym_tui.state.transcript import clipped

FAULTY = "✗"
"""The mark of a demonstration with a fault."""
OTHER_PROMPT = "≠"
"""The mark of a demonstration under another prompt."""
SHOWN_OF_TEXT = 200
"""Characters of an observation that a line begins to show, at most."""


class EpisodeRow(NamedTuple):
    line: int
    """From 1."""
    content: bytes
    """The line's bytes without its newline."""
    demo: Demonstration | None
    """None: the line is no demonstration."""
    faults: tuple[str, ...]
    """What `demos check` reports about the line, a sentence each."""
    other_prompt: bool = False
    """Whether it was recorded under another prompt than the present one."""


def _column(
    title: str, width: int, text: Callable[[Demonstration], str], by: str = ""
) -> Column[EpisodeRow]:
    """A column of what a demonstration has; `by`: the attribute by which it sorts."""
    return Column(
        title,
        width,
        lambda row: text(row.demo) if row.demo else "",
        attrgetter(f"demo.{by}") if by else None,
    )


class EpisodeList(TableList[EpisodeRow]):
    """Episodes of a file, with the beginning of each."""

    COLUMNS = (
        Column("line", 5, lambda row: f"{row.line:,}", attrgetter("line")),
        _column("return", 7, lambda demo: number(demo.episode_return), "episode_return"),
        _column("turns", 5, lambda demo: f"{demo.length:,}", "length"),
        _column("source", 10, lambda demo: demo.source, "source"),
        _column(
            "recorded", 16, lambda demo: demo.recorded_at[:16].replace("T", " "), "recorded_at"
        ),
        _column(
            "first observation", 0, lambda demo: next(iter(demo.observations), "")[:SHOWN_OF_TEXT]
        ),
    )

    def key(self, row: EpisodeRow) -> bytes:
        return row.content

    def ordered(self, rows: list[EpisodeRow]) -> list[EpisodeRow]:
        """Lines that are no demonstration come last."""
        whole = super().ordered([row for row in rows if row.demo is not None])
        return whole + [row for row in rows if row.demo is None]

    def mark_of(self, row: EpisodeRow) -> str:
        if row.faults:
            return FAULTY
        return OTHER_PROMPT if row.other_prompt else ""

    def line(self, row: EpisodeRow, width: int) -> Content:
        if row.demo is None:
            why = one_line(row.faults[0] if row.faults else "no demonstration")
            return Content.styled(f"{FAULTY} {row.line:<5,}  {why}", "$text-error")
        line = super().line(row, width)
        return line.stylize("$text-error") if row.faults else line


def read_rows(path: Path, agent: AgentBase, prompt: str | None = None) -> list[EpisodeRow]:
    """The lines of a file, checked and compared with the present prompt; an absent file has none.

    Raises:
        DemoFileError: the file cannot be read.
    """
    lines = list(lines_of(path)) if path.exists() else []
    found: dict[int, list[str]] = {}
    for fault in faults(lines, agent) if lines else []:
        found.setdefault(fault.line, []).append(fault.sentence)
    rows = [
        EpisodeRow(
            line.number, line.content, readable(line.content), tuple(found.get(line.number, ()))
        )
        for line in lines
    ]
    return [
        row._replace(other_prompt=bool(row.demo and prompt not in (None, row.demo.system_prompt)))
        for row in rows
    ]


SPEAKERS = {"system": "system", "user": "env", "assistant": "agent"}
MAX_MESSAGES = 600
"""Messages of an episode that are shown."""
MAX_RETURNS = 6
"""Different returns that are counted one by one; of more, only the range is shown."""
GUTTER = 8
"""Cells of the labels."""


def episode_text(row: EpisodeRow, agent: AgentBase, width: int) -> Content:
    """The conversation of a row, its faults first; messages are wrapped next to their labels at `width` cells."""
    parts = [Content.styled(f"✗ {one_line(fault)}", "$text-error") for fault in row.faults]
    if row.other_prompt:
        parts.append(
            Content.styled(
                "≠ recorded under another system prompt than the present one", "$text-warning"
            )
        )
    demo = row.demo
    if demo is None:
        return Content("\n").join(
            [*parts, Content(literal(clipped(row.content.decode("utf-8", "replace"))))]
        )
    parts.append(_heading(row, demo))
    turn = 0
    for message in demo.messages[:MAX_MESSAGES]:
        role = message["role"]
        by_person = role == "assistant" and (demo.source == "human" or turn in demo.corrected)
        label = "you" if by_person else SPEAKERS[role]
        style = "bold $primary" if role == "assistant" else ASIDE
        parts.append(
            _message(
                Content.styled(f"{label:<{GUTTER}}", style), clipped(message["content"]), width
            )
        )
        if role == "assistant":
            if turn < len(demo.actions) and turn < len(demo.rewards):
                parts.append(_turn(demo, turn, agent))
            if turn in demo.corrected:
                instead = Content.styled(f"{'instead':<{GUTTER}}", ASIDE)
                parts.append(
                    _message(instead, f"the agent: {clipped(demo.corrected[turn])}", width)
                )
            turn += 1
    if len(demo.messages) > MAX_MESSAGES:
        parts.append(
            Content.styled(f"… {len(demo.messages) - MAX_MESSAGES:,} more messages", ASIDE)
        )
    parts.append(
        Content.styled(f"return  {number(demo.episode_return)} · {one_line(demo.end)}", "bold")
    )
    return Content("\n").join(parts)


def summary_text(rows: Sequence[EpisodeRow], agent: AgentBase) -> Content:
    """Episodes by source and by return, turns by action; a line each."""
    demos = [row.demo for row in rows if row.demo is not None]
    sources = Counter(one_line(demo.source) for demo in demos).most_common()
    actions = Counter(
        one_line(agent.action_name(action)) for demo in demos for action in demo.actions
    )
    turns, most = actions.total(), max(actions.values(), default=0)
    lines = {
        "sources": " · ".join(f"{name} {count:,}" for name, count in sources),
        "returns": _returns([demo.episode_return for demo in demos]),
        "actions": " · ".join(
            f"{name} {bar(n / most)} {share(n / turns, 0)}" for name, n in actions.most_common()
        ),
    }
    return Content("\n").join(
        Content.assemble((f"{name:<9}", ASIDE), text or "–") for name, text in lines.items()
    )


def _message(label: Content, text: str, width: int) -> Content:
    lines = Content(literal(text)).wrap(max(1, width - GUTTER))
    indent = Content(" " * GUTTER)
    return Content("\n").join(
        [(indent if index else label) + line for index, line in enumerate(lines)]
    )


def _heading(row: EpisodeRow, demo: Demonstration) -> Content:
    played = (
        f"{one_line(demo.source)} ({one_line(demo.model)})" if demo.model else one_line(demo.source)
    )
    seed = "" if demo.seed is None else f" · seed {demo.seed}"
    return Content.styled(
        f"── line {row.line:,} · {played} · {one_line(demo.recorded_at)}{seed}", ASIDE
    )


def _turn(demo: Demonstration, turn: int, agent: AgentBase) -> Content:
    name = one_line(agent.action_name(demo.actions[turn]))
    return Content.assemble(
        ("action  ", ASIDE), (name, "bold"), (f" · reward {number(demo.rewards[turn])}", ASIDE)
    )


def _returns(returns: list[float]) -> str:
    if not returns:
        return ""
    mean = f"mean {number(sum(returns) / len(returns), 3)}"
    counted = Counter(returns)
    if len(counted) > MAX_RETURNS:
        return f"{mean} · from {number(min(returns))} to {number(max(returns))}"
    most = max(counted.values())
    bars = (
        f"{number(value)} {bar(n / most)} {n:,}"
        for value, n in sorted(counted.items(), reverse=True)
    )
    return " · ".join([mean, *bars])
