"""Conversations of other programs as demonstrations: OpenAI's messages, ShareGPT, Alpaca, prompts with completions.

The agent's own reader finds the action in each reply. A conversation that is no example to train on is left out, with
its reason. Rewards are not known and stand as 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import MOST_LINE, Demonstration, PlayedTurn, encode
from llamagym_tui.demos.edits import legal_action
from llamagym_tui.demos.faults import Fault, short
from llamagym_tui.errors import ActionParseError, DemoFileError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import ChatMessage, Role

Form = Literal["openai", "sharegpt", "alpaca", "pairs"]
"""``openai``: ``messages``; ``sharegpt``: ``conversations``; ``alpaca``: ``instruction``, ``input`` and ``output``;
``pairs``: ``prompt`` and ``completion``, each a text or messages."""
ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "tool", "function", "observation"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "chatgpt", "function_call"), "assistant"),
}
"""Our roles by theirs; what a tool gives back is an observation."""


class Imported(NamedTuple):
    """What came of a file."""

    demonstrations: list[Demonstration]
    left_out: list[Fault]
    """Why conversations were left out, each with its line."""
    unanswered: int
    """The number of conversations whose last message had no reply, and was left out."""


def imported(
    path: Path, form: Form, agent: AgentBase, agent_name: str, *, clock: Callable[[], datetime]
) -> Imported:
    """The conversations of a file, of lines or as an array, as demonstrations of an agent; nothing is written.

    A conversation without a system message gets the agent's own system prompt.

    Raises:
        DemoFileError: the file cannot be read, or all of it would be left out; the message has the first reason.
    """
    found: dict[bytes, int] = {}
    demos = []
    left_out = []
    unanswered = 0
    now = clock()
    for line in demo_files.lines_of(path):
        try:
            if line.too_long:
                raise ValueError(f"it has over {MOST_LINE:,} bytes")
            messages = _messages(line.content, form, agent)
            is_answered = messages[-1]["role"] == "assistant"
            demo = _demonstration(
                messages if is_answered else messages[:-1], agent, agent_name, now
            )
            first = found.setdefault(encode(demo), line.number)
            if first != line.number:
                raise ValueError(f"it is the same as that of line {first}")
        except (ValueError, RecursionError, ActionParseError, DemoFileError) as error:
            left_out.append(Fault(line.number, str(error).rstrip(".")))
            continue
        demos.append(demo)
        unanswered += not is_answered
    if not demos:
        first_reason = (
            f"line {left_out[0].line}: {left_out[0].sentence}" if left_out else "it is empty"
        )
        raise DemoFileError(f"{path} has no conversation to learn from ({first_reason}).")
    return Imported(demos, left_out, unanswered)


def _demonstration(
    messages: Sequence[ChatMessage], agent: AgentBase, agent_name: str, now: datetime
) -> Demonstration:
    """A conversation in our roles as an episode; raises ValueError or ActionParseError if it is none."""
    own = [message["content"] for message in messages if message["role"] == "system"]
    played = [message for message in messages if message["role"] != "system"]
    if [message["role"] for message in messages[: len(own)]] != ["system"] * len(own):
        raise ValueError("a system message stands within the conversation")
    roles = [message["role"] for message in played]
    if roles != ["user", "assistant"] * (len(roles) // 2):
        raise ValueError("user and assistant do not take turns, the user first")
    turns = []
    for at, (observation, reply) in enumerate(zip(played[::2], played[1::2], strict=True), start=1):
        try:
            action = legal_action(reply["content"], agent)
        except ActionParseError as error:
            raise ActionParseError(f"turn {at}, {short(reply['content'])}: {error}") from error
        turns.append(PlayedTurn(observation["content"], None, reply["content"], action, 0.0))
    if not turns:
        raise ValueError("it has no reply")
    demo = Demonstration.of(
        agent,
        agent_name,
        "\n\n".join(own) or agent.get_system_prompt(),
        turns,
        end="truncated",
        source="import",
        recorded_at=now,
    )
    for message, given in zip(demo.messages[-len(played) :], played, strict=True):
        if "weight" in given:
            message["weight"] = given["weight"]
    return demo


def _messages(content: bytes, form: Form, agent: AgentBase) -> list[ChatMessage]:
    """The messages of a line in our roles; raises ValueError if it does not have the form."""
    row = msgspec.json.decode(content)
    if not isinstance(row, dict):
        raise ValueError("it is no object")
    if "episode_return" in row and "messages" in row:
        raise ValueError("it is a demonstration already: see `llamagym-tui demos merge`")
    messages = [_message(given) for given in _given(row, form, agent)]
    if not messages:
        raise ValueError("it has no messages")
    return messages


def _given(row: Mapping[str, Any], form: Form, agent: AgentBase) -> Iterator[Any]:
    """The messages of a row as its form has them, each with its role and content."""
    match form:
        case "openai":
            yield from _list_in(row, "messages")
        case "sharegpt":
            if row.get("system"):
                yield {"role": "system", "content": row["system"]}
            for message in _list_in(row, "conversations"):
                if not isinstance(message, dict):
                    raise ValueError(f"{short(message)} is no message")
                yield {"role": message.get("from"), "content": message.get("value")}
        case "alpaca":
            if row.get("system"):
                yield {"role": "system", "content": row["system"]}
            for pair in row.get("history") or ():
                if not isinstance(pair, list) or len(pair) != 2:
                    raise ValueError("its history is no list of pairs")
                yield {"role": "user", "content": pair[0]}
                yield {"role": "assistant", "content": pair[1]}
            instruction, given = _field(row, "instruction"), row.get("input") or ""
            if given and instruction == agent.get_system_prompt():
                yield {"role": "system", "content": instruction}
                yield {"role": "user", "content": given}
            else:
                yield {
                    "role": "user",
                    "content": f"{instruction}\n\n{given}" if given else instruction,
                }
            yield {"role": "assistant", "content": _field(row, "output")}
        case "pairs":
            for name, role in (("prompt", "user"), ("completion", "assistant")):
                if isinstance(_field(row, name), str):
                    yield {"role": role, "content": row[name]}
                else:
                    yield from _list_in(row, name)


def _field(row: Mapping[str, Any], name: str) -> Any:
    """The value of a field; raises ValueError if there is none."""
    if name not in row:
        raise ValueError(f"it has no field {name}, but {', '.join(row) or 'none'}")
    return row[name]


def _list_in(row: Mapping[str, Any], name: str) -> list[Any]:
    value = _field(row, name)
    if not isinstance(value, list):
        raise ValueError(f"its field {name} is no list of messages")
    return value


def _message(given: Any) -> ChatMessage:
    """A message in our form; raises ValueError if it has no text or role of a conversation."""
    if not isinstance(given, dict):
        raise ValueError(f"{short(given)} is no message")
    role = ROLES.get(str(given.get("role")).lower())
    if role is None:
        raise ValueError(f"a message has the role {short(given.get('role'))}")
    message: ChatMessage = {"role": role, "content": _text(given)}
    if given.get("weight") in (0, 1):
        message["weight"] = cast(Literal[0, 1], int(given["weight"]))
    return message


def _text(given: Mapping[str, Any]) -> str:
    """The text of a message: its content, that content's parts, or its tool calls as JSON."""
    content = given.get("content")
    if isinstance(content, list):
        parts: list[Any] = [
            part.get("text") if isinstance(part, dict) else part for part in content
        ]
        if not all(isinstance(part, str) for part in parts):
            raise ValueError("a message has a part that is no text")
        content = "\n".join(parts)
    calls = given.get("tool_calls") or (
        [given["function_call"]] if given.get("function_call") else []
    )
    if calls:
        called = [call.get("function", call) if isinstance(call, dict) else call for call in calls]
        spelled = [msgspec.json.encode(call).decode() for call in called]
        content = "\n".join([content, *spelled] if content else spelled)
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"a message of {given.get('role')} is empty")
    return content
