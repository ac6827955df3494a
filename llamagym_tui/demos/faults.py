"""Everything that can be wrong with a file of demonstrations: a sentence for each fault."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from llamagym_tui.demos.demonstration import MOST_LINE, SCHEMA, Demonstration, decode
from llamagym_tui.game.agent_base import AgentBase

RETURN_TOLERANCE = 1e-6
"""Tolerated difference of `episode_return` from the sum of rewards, relative to the larger of the two and 1."""
LONGEST = 60
"""Most characters that a fault quotes of a value."""


class Line(NamedTuple):
    """A line of a file."""

    number: int
    """Counted from 1."""
    content: bytes
    """The line without its end; empty if it is too long."""
    torn: bool
    """True if its end is missing, which can only be so in the last line."""
    too_long: bool = False
    """True if it has more than `MOST_LINE` bytes."""


class Fault(NamedTuple):
    """Something that is wrong with a file."""

    line: int
    """Number of the line, from 1; 0 for the file as a whole."""
    sentence: str
    """The fault, for people."""


def faults(lines: Iterable[Line], agent: AgentBase | None = None) -> list[Fault]:
    """All faults, in the order of the lines; without an agent, replies are not compared with actions."""
    found: list[Fault] = []
    # Digests, so that the lines themselves need not be kept.
    first_seen: dict[bytes, int] = {}
    for line in lines:
        for sentence in _line_faults(line, agent):
            found.append(Fault(line.number, sentence))
        first = first_seen.setdefault(hashlib.sha256(line.content).digest(), line.number)
        if first != line.number and line.content:
            found.append(Fault(line.number, f"This is the same episode as in line {first}."))
    if not first_seen:
        found.append(Fault(0, "The file is empty."))
    return found


def _line_faults(line: Line, agent: AgentBase | None) -> Iterator[str]:
    """The faults of a line; if it cannot be read, only that."""
    if line.too_long:
        yield f"The line has over {MOST_LINE:,} bytes; remove it with an editor."
        return
    try:
        demo = decode(line.content)
    except ValueError as error:
        if line.torn:
            yield "The line is incomplete; a crash may have interrupted its writing."
        else:
            yield f"This is no demonstration: {error}."
        return
    if demo.schema != SCHEMA:
        yield f"The schema is {demo.schema}, and this program knows {SCHEMA}; update it."
        return
    yield from _conversation_faults(demo)
    yield from _figure_faults(demo)
    if agent is not None:
        yield from _reply_faults(demo, agent)


def _conversation_faults(demo: Demonstration) -> Iterator[str]:
    """Messages that are missing, empty, or in a wrong order."""
    roles = [message["role"] for message in demo.messages]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    if not turns:
        yield "The conversation is empty."
    elif turns != ["user", "assistant"] * (len(turns) // 2):
        yield "After a first system message, user and assistant must take turns and the assistant must be last."
    for index, message in enumerate(demo.messages):
        if message["role"] != "system" and not message["content"].strip():
            yield f"Message {index + 1} ({message['role']}) is empty."


def _figure_faults(demo: Demonstration) -> Iterator[str]:
    """Counts and sums that do not fit each other."""
    turns = len(demo.actions)
    counts = {"replies": len(demo.replies), "rewards": len(demo.rewards), "turns": demo.length}
    if demo.admissible:
        counts["turns with admissible actions"] = len(demo.admissible)
    for name, count in counts.items():
        if count != turns:
            yield f"There are {count} {name} but {turns} actions."
    total = sum(demo.rewards)  # `fsum` would raise an error if this is infinite
    if not math.isclose(
        total, demo.episode_return, rel_tol=RETURN_TOLERANCE, abs_tol=RETURN_TOLERANCE
    ):
        yield f"The return is given as {demo.episode_return:g}, but the rewards add up to {total:g}."
    for turn in sorted(demo.replaced_replies):
        if not 0 <= turn < turns:
            yield f"There is a replaced reply of turn {turn} (from 0), but there are {turns} actions."


def _reply_faults(demo: Demonstration, agent: AgentBase) -> Iterator[str]:
    """Replies in which the agent reads another action than the one that was recorded, or none."""
    for turn, (reply, action) in enumerate(zip(demo.replies, demo.actions, strict=False), start=1):
        reading = agent.read(reply)
        if reading.failed and demo.replaced_replies and turn - 1 not in demo.replaced_replies:
            continue  # the model's own reply, which is not trained on
        if reading.failed:
            yield f"Turn {turn}: the agent reads no action in the reply."
        elif reading.action != action:
            yield f"Turn {turn}: the reply says {short(reading.action)}, but the action was {short(action)}."


def short(value: object) -> str:
    """A value as a sentence quotes it."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
