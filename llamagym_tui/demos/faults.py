"""Everything that can be wrong with a file of demonstrations: a sentence for each fault."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.files import Line, lines_of
from llamagym_tui.game.agent_base import AgentBase

RETURN_TOLERANCE = 1e-6
"""Tolerated difference of `episode_return` from the sum of rewards, relative to the larger of the two and 1."""
LONGEST = 60
"""Most characters that a fault quotes of a value."""


class Fault(NamedTuple):
    """Something that is wrong with a file."""

    line: int
    """Number of the line, from 1; 0 for the file as a whole."""
    sentence: str
    """The fault, for people."""


def check(path: Path, agent: AgentBase | None = None) -> list[Fault]:
    """The faults of a file, line by line; empty if it can be trained on.

    Raises:
        DemoFileError: it cannot be read.
    """
    return faults(lines_of(path), agent)


def faults(lines: Iterable[Line], agent: AgentBase | None = None) -> list[Fault]:
    """All faults, in the order of the lines; without an agent, replies are not compared with actions."""
    found: list[Fault] = []
    # Digests, so that the lines themselves need not be kept.
    first_seen: dict[bytes, int] = {}
    for line in lines:
        if line.demo is None:
            found.append(Fault(line.number, line.fault))
        else:
            sentences = [*_conversation_faults(line.demo), *_figure_faults(line.demo)]
            if agent is not None:
                sentences += _reply_faults(line.demo, agent)
            found += [Fault(line.number, sentence) for sentence in sentences]
        first = first_seen.setdefault(hashlib.sha256(line.content).digest(), line.number)
        if first != line.number and line.content:
            found.append(Fault(line.number, f"This is the same episode as in line {first}."))
    if not first_seen:
        found.append(Fault(0, "The file is empty."))
    return found


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
