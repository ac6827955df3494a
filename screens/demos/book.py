"""A file of demonstrations as a person looks at it: episodes with their faults, sorted, filtered, counted.

Reads only; `demo_edits` changes the file, and the book is opened anew.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from llamagym_tui.demos import jsonl
from llamagym_tui.demos.demonstration import Demonstration, decode
from llamagym_tui.demos.faults import faults
from llamagym_tui.errors import DemoFileError
from llamagym_tui.game.agent_base import AgentBase

SortKey = Literal["line", "return", "turns", "source", "time"]
"""What episodes are sorted by."""
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)
COMPARISONS = {"<=": le, ">=": ge, "<": lt, ">": gt, "=": eq}
_COMPARED = re.compile(r"(return|turns)(<=|>=|<|>|=)(-?[0-9]+(?:\.[0-9]+)?)")


class Row(NamedTuple):
    """A line of the file."""

    line: int
    """From 1."""
    content: bytes
    """As it stands in the file, without its end."""
    demo: Demonstration | None
    """None: the line is no demonstration."""
    faults: tuple[str, ...]
    """What `demos check` says about it, a sentence each."""


class Summary(NamedTuple):
    """Episodes, counted."""

    episodes: int
    mean_return: float
    """0 when there are none."""
    faulty: int
    """Lines with a fault."""
    sources: dict[str, int]
    """Episodes by source, the most frequent first."""
    returns: dict[float, int]
    """Episodes by return, the highest first."""
    actions: dict[str, int]
    """Turns by the name of their action, the most frequent first."""


def open_book(path: Path, agent: AgentBase | None, *, check: bool = True) -> list[Row]:
    """The lines of a file; an absent file has none.

    Args:
        path: of the file.
        agent: whose reading the replies must agree with; None: replies are not read.
        check: whether to look for faults, which takes most of the time.
    Raises:
        DemoFileError: the file cannot be read.
    """
    try:
        lines = list(jsonl.lines(path)) if path.exists() else []
    except OSError as error:
        raise DemoFileError(f"{path} cannot be read ({error.strerror or error}); check its rights.") from error
    found: dict[int, list[str]] = {}
    for fault in faults(lines, agent) if lines and check else []:
        found.setdefault(fault.line, []).append(fault.sentence)
    return [Row(line.number, line.content, _decoded(line.content), tuple(found.get(line.number, ()))) for line in lines]


def summary(rows: Sequence[Row], agent: AgentBase | None) -> Summary:
    """Rows, counted; actions have the agent's names."""
    demos = [row.demo for row in rows if row.demo is not None]
    name = agent.action_name if agent is not None else str
    actions = Counter(name(action) for demo in demos for action in demo.actions)
    returns = Counter(demo.episode_return for demo in demos)
    return Summary(
        episodes=len(demos),
        mean_return=sum(demo.episode_return for demo in demos) / len(demos) if demos else 0.0,
        faulty=sum(bool(row.faults) for row in rows),
        sources=dict(Counter(demo.source for demo in demos).most_common()),
        returns=dict(sorted(returns.items(), reverse=True)),
        actions=dict(actions.most_common()),
    )


def matching(rows: Sequence[Row], words: str) -> list[Row]:
    """Rows that satisfy every word: ``return>=1``, ``turns<3``, ``faulty``, a source, or any text of its messages."""
    wanted = words.casefold().split()
    return [row for row in rows if all(_matches(row, word) for word in wanted)]


def ordered(rows: Sequence[Row], by: SortKey, *, descending: bool) -> list[Row]:
    """Rows in another order; equal ones stay as they were, and lines that are no demonstration come last."""
    whole = [row for row in rows if row.demo is not None]
    broken = [row for row in rows if row.demo is None]
    return sorted(whole, key=lambda row: _sort_value(row, by), reverse=descending) + broken


def _matches(row: Row, word: str) -> bool:
    if word == "faulty":
        return bool(row.faults)
    demo = row.demo
    if demo is None:
        return word in row.content.decode("utf-8", "replace").casefold()
    if compared := _COMPARED.fullmatch(word):
        name, sign, number = compared.groups()
        return bool(COMPARISONS[sign](demo.episode_return if name == "return" else demo.length, float(number)))
    if word in (demo.source.casefold(), demo.end):
        return True
    return any(word in message["content"].casefold() for message in demo.messages if message["role"] != "system")


def _sort_value(row: Row, by: SortKey) -> float | str:
    demo = row.demo
    assert demo is not None, "lines that are no demonstration are sorted apart"
    match by:
        case "line":
            return row.line
        case "return":
            return demo.episode_return
        case "turns":
            return demo.length
        case "source":
            return demo.source
        case "time":
            return demo.recorded_at


def _decoded(content: bytes) -> Demonstration | None:
    try:
        return decode(content)
    except msgspec.DecodeError:
        return None
