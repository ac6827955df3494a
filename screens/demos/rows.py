"""A file of demonstrations as rows: episodes with their faults, sorted and filtered.

Reads only; `edits` changes the file, and the file is read again.
"""

import re
from collections.abc import Callable, Sequence
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import Any, NamedTuple

from llamagym_tui.demos.demonstration import Demonstration, readable
from llamagym_tui.demos.faults import faults
from llamagym_tui.demos.files import lines_of
from llamagym_tui.game.agent_base import AgentBase

COMPARISONS = {"<=": le, ">=": ge, "<": lt, ">": gt, "=": eq}
_COMPARISON = re.compile(r"(?:return|turns)[<>=]")
_COMPARED = re.compile(r"(return|turns)(<=|>=|<|>|=)(-?[0-9]+(?:\.[0-9]+)?)")


class Row(NamedTuple):
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


class Column(NamedTuple):
    title: str
    width: int
    """Cells, the gap after it included."""
    value: Callable[[Row, Demonstration], Any]
    """By which it sorts."""


COLUMNS = (
    Column("line", 7, lambda row, demo: row.line),
    Column("return", 9, lambda row, demo: demo.episode_return),
    Column("turns", 7, lambda row, demo: demo.length),
    Column("source", 12, lambda row, demo: demo.source),
    Column("recorded", 18, lambda row, demo: demo.recorded_at),
)


def read_rows(path: Path, agent: AgentBase, prompt: str | None = None) -> list[Row]:
    """The lines of a file, checked and compared with the present prompt; an absent file has none.

    Raises:
        DemoFileError: the file cannot be read.
    """
    lines = list(lines_of(path)) if path.exists() else []
    found: dict[int, list[str]] = {}
    for fault in faults(lines, agent) if lines else []:
        found.setdefault(fault.line, []).append(fault.sentence)
    rows = [Row(line.number, line.content, readable(line.content), tuple(found.get(line.number, ()))) for line in lines]
    return [row._replace(other_prompt=bool(row.demo and prompt not in (None, row.demo.system_prompt))) for row in rows]


def matching(rows: Sequence[Row], words: str) -> list[Row]:
    """Rows that match every word: ``return>=1``, ``turns<3``, ``faulty``, ``other-prompt``, a source, or any text."""
    wanted = words.casefold().split()
    return [row for row in rows if all(_matches(row, word) for word in wanted)]


def misread(words: str) -> str:
    """A sentence on the first comparison of a filter that has no number, else empty."""
    for word in words.casefold().split():
        if _COMPARISON.match(word) and not _COMPARED.fullmatch(word):
            return f"{word} compares with no number; write it as return>=1 or turns<3."
    return ""


def ordered(rows: Sequence[Row], by: str, *, descending: bool) -> list[Row]:
    """Rows sorted by a column (stable); lines that are no demonstration come last."""
    whole = [(row, row.demo) for row in rows if row.demo is not None]
    value = next(column.value for column in COLUMNS if column.title == by)
    whole.sort(key=lambda pair: value(*pair), reverse=descending)
    return [row for row, _ in whole] + [row for row in rows if row.demo is None]


def _matches(row: Row, word: str) -> bool:
    if word == "faulty":
        return bool(row.faults)
    if word == "other-prompt":
        return row.other_prompt
    demo = row.demo
    if demo is None:
        return word in row.content.decode("utf-8", "replace").casefold()
    if compared := _COMPARED.fullmatch(word):
        name, sign, number = compared.groups()
        return bool(COMPARISONS[sign](demo.episode_return if name == "return" else demo.length, float(number)))
    if word in (demo.source.casefold(), demo.end):
        return True
    return any(word in message["content"].casefold() for message in demo.messages if message["role"] != "system")
