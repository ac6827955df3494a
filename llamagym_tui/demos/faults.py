"""Everything that can be wrong with a file of demonstrations: a sentence for each fault, from bytes to meaning."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from llamagym_tui.demos.demonstration import MOST_LINE, SCHEMA, Demonstration, decode
from llamagym_tui.demos.jsonl import Line
from llamagym_tui.game.agent_base import AgentBase, prompt_sha256

RETURN_TOLERANCE = 1e-6
"""How much `episode_return` may differ from the sum of rewards, relative to the larger of the two and at least to 1."""
LONGEST = 60
"""Most characters that a fault quotes of a value."""
REQUIRED = tuple(field.name for field in msgspec.structs.fields(Demonstration) if field.required)


class Fault(NamedTuple):
    """Something that is wrong with a file."""

    line: int
    """Number of the line, from 1; 0: it is about the file as a whole."""
    sentence: str
    """What is wrong, for people."""


def faults(lines: Iterable[Line], agent: AgentBase | None = None) -> list[Fault]:
    """Everything that is wrong, in the order of the lines; without an agent, replies are not compared with actions."""
    found: list[Fault] = []
    first_seen: dict[
        bytes, int
    ] = {}  # numbers of lines by digest, so that the lines themselves need not be kept
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
    """What is wrong with a line; if it cannot be read, only that."""
    if line.too_long:
        yield f"The line has over {MOST_LINE:,} bytes; remove it with an editor."
        return
    try:
        line.content.decode("utf-8")
    except UnicodeDecodeError as error:
        yield f"Byte {error.start + 1} is not UTF-8; save the file as UTF-8."
        return
    value = _parsed(line.content)
    if isinstance(value, str):
        why_not = value
        if line.torn:
            why_not = "The line is incomplete; a crash may have interrupted its writing."
        yield why_not
        return
    yield from _form_faults(line.content, value, agent)


def _parsed(content: bytes) -> dict[str, object] | str:
    """The line's object, or a sentence that explains why there is none."""
    try:
        value = msgspec.json.decode(content)
    except RecursionError:
        return "Its JSON is nested too deep."
    except msgspec.DecodeError as error:
        return f"This is not JSON: {error}."
    if not isinstance(value, dict):
        return f"A line holds one JSON object, and this is a {type(value).__name__}."
    return value


def _form_faults(
    content: bytes, value: dict[str, object], agent: AgentBase | None
) -> Iterator[str]:
    """What is wrong with an object; if it is no demonstration, only that."""
    schema = value.get("schema", SCHEMA)
    if schema != SCHEMA:
        yield f"The schema is {short(schema)}, and this program knows {SCHEMA}; update it."
        return
    missing = [name for name in REQUIRED if name not in value]
    if missing:
        yield f"These fields are missing: {', '.join(missing)}."
        return
    try:
        demo = decode(content)
    except ValueError as error:
        yield f"A field has a wrong value: {error}."
        return
    yield from _conversation_faults(demo)
    yield from _figure_faults(demo)
    yield from _correction_faults(demo)
    yield from _origin_faults(demo)
    if agent is not None:
        yield from _reply_faults(demo, agent)


def _conversation_faults(demo: Demonstration) -> Iterator[str]:
    """Messages that are missing, empty, or in a wrong order."""
    roles = [message["role"] for message in demo.messages]
    if not roles:
        yield "The conversation is empty."
        return
    turns = roles[1:] if roles[0] == "system" else roles
    users = turns[0::2]
    assistants = turns[1::2]
    takes_turns = set(users) == {"user"} and set(assistants) == {"assistant"}
    if "system" in turns:
        yield "There is a system message that is not the first message."
    elif not takes_turns or len(users) != len(assistants):
        yield "After the system message, user and assistant must take turns and the assistant must be last."
    for index, message in enumerate(demo.messages):
        if message["role"] != "system" and not message["content"].strip():
            yield f"Message {index + 1} ({message['role']}) is empty."


def _figure_faults(demo: Demonstration) -> Iterator[str]:
    """Counts and sums that do not fit each other."""
    replies = len(demo.replies)
    if replies != len(demo.actions):
        yield f"There are {replies} replies but {len(demo.actions)} actions."
    if len(demo.rewards) != len(demo.actions):
        yield f"There are {len(demo.rewards)} rewards but {len(demo.actions)} actions."
    if demo.admissible and len(demo.admissible) != len(demo.actions):
        yield f"There are admissible actions for {len(demo.admissible)} turns, but {len(demo.actions)} actions."
    if demo.length != len(demo.actions):
        yield f"The length is given as {short(demo.length)}, but there are {len(demo.actions)} actions."
    total = sum(demo.rewards)  # `fsum` would raise an error if this is infinite
    if not math.isclose(
        total, demo.episode_return, rel_tol=RETURN_TOLERANCE, abs_tol=RETURN_TOLERANCE
    ):
        yield f"The return is given as {demo.episode_return:g}, but the rewards add up to {total:g}."


def _correction_faults(demo: Demonstration) -> Iterator[str]:
    """A person's turns that are no turns of the episode, or that its source does not tell of."""
    for turn in sorted(demo.corrected):
        if not 0 <= turn < len(demo.actions):
            yield f"There is a replaced reply of turn {turn} (from 0), but there are {len(demo.actions)} actions."
    if demo.corrected and demo.source != "correction":
        yield f"Replies were replaced, so the source is correction and not {short(demo.source)}."


def _origin_faults(demo: Demonstration) -> Iterator[str]:
    """What is wrong with where the episode comes from: prompt, agent, environment, source and time."""
    if prompt_sha256(demo.system_prompt) != demo.prompt_sha256:
        yield "The prompt's hash does not belong to the system message."
    for name in ("agent", "env_id", "source"):
        if not getattr(demo, name):
            yield f"The field {name} is empty."
    if not _is_utc(demo.recorded_at):
        yield f"The time {short(demo.recorded_at)} is not UTC in the form 2026-01-31T12:00:00Z."


def _is_utc(timestamp: str) -> bool:
    try:
        return timestamp.endswith("Z") and datetime.fromisoformat(timestamp).tzinfo == UTC
    except ValueError:
        return False


def _reply_faults(demo: Demonstration, agent: AgentBase) -> Iterator[str]:
    """Replies in which the agent reads another action than the one that was recorded, or none."""
    for turn, (reply, action) in enumerate(zip(demo.replies, demo.actions, strict=False), start=1):
        reading = agent.read(reply)
        if reading.failed and demo.corrected and turn - 1 not in demo.corrected:
            continue  # the model's own reply, which is not trained on
        if reading.failed:
            yield f"Turn {turn}: the agent reads no action in the reply."
        elif reading.action != action:
            yield f"Turn {turn}: the reply says {short(reading.action)}, but the action was {short(action)}."


def short(value: object) -> str:
    """A value as a sentence quotes it."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
