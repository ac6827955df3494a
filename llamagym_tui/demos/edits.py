"""Taking back and mending what was recorded: episodes out of a file and back into it, replies worded anew.

Guarantees that nothing recorded is lost: a file is written anew as a whole, under the lock that appends take, and what
is removed stands in ``<path>.trash`` before it leaves the file. Lines are known by their bytes, so that what another
program added meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from filelock import Timeout
from msgspec.structs import replace

from llamagym_tui.demos import jsonl
from llamagym_tui.demos.demonstration import Demonstration, is_whole
from llamagym_tui.errors import ActionParseError, DemoFileError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import assistant

SOURCE = "correction"
"""Source of an episode whose reply a person has worded anew."""


class Removed(NamedTuple):
    """A line that was taken out of a file."""

    place: int
    """Where it stood, from 0, among the lines that there were."""
    content: bytes
    """Without its end."""


def trash_path(path: Path) -> Path:
    """Where removed lines of a file are kept; nothing empties it but a person."""
    return path.with_name(f"{path.name}.trash")


def remove(path: Path, contents: Sequence[bytes]) -> list[Removed]:
    """Take lines out of a file and into its trash; one for each content.

    Raises:
        DemoFileError: a line is not there any more, or nothing can be written; the file has what it had.
    """
    removed: list[Removed] = []

    def change(lines: list[bytes]) -> list[bytes]:
        left: list[bytes | None] = [*lines]
        for content in contents:
            index = _index(path, left, content)
            left[index] = None
            removed.append(Removed(index, content))
        for line in removed:
            jsonl.append_line(trash_path(path), line.content, is_whole=is_whole)
        return [line for line in left if line is not None]

    _rewrite(path, change)
    return sorted(removed)


def put_back(path: Path, removed: Sequence[Removed]) -> None:
    """Put removed lines back where they stood, and out of the trash.

    Raises:
        DemoFileError: nothing can be written; the lines are in the trash, or in both places.
    """

    def change(lines: list[bytes]) -> list[bytes]:
        for line in sorted(removed):
            lines.insert(line.place, line.content)
        return lines

    def emptied(lines: list[bytes]) -> list[bytes]:
        for line in removed:
            if line.content in lines:
                lines.remove(line.content)
        return lines

    _rewrite(path, change)
    _rewrite(trash_path(path), emptied)


def exchange(path: Path, old: bytes, new: bytes) -> None:
    """Put one line in another one's place.

    Raises:
        DemoFileError: the old line is not there any more, or nothing can be written; the file has what it had.
    """

    def change(lines: list[bytes]) -> list[bytes]:
        lines[_index(path, lines, old)] = new
        return lines

    _rewrite(path, change)


def with_reply(demo: Demonstration, turn: int, reply: str, agent: AgentBase) -> Demonstration:
    """The episode with another reply in a turn; a correction from then on.

    A reply that names the same action leaves everything else as it was. One that names another action ends the
    episode there, as truncated and with reward 0: what came after it did not follow from this action.

    Args:
        demo: as it was recorded.
        turn: index from 0.
        reply: the new one.
        agent: by whose reading it must name an action.
    Raises:
        ActionParseError: it names none, or none that there is.
    """
    action = legal_action(reply, agent)
    at = [index for index, message in enumerate(demo.messages) if message["role"] == "assistant"][turn]
    messages = [*demo.messages]
    messages[at] = assistant(reply)
    replaced = demo.replaced_replies
    if demo.corrected:  # or this turn would not be trained on
        replaced = {turn: demo.messages[at]["content"], **demo.corrected}
    if action == demo.actions[turn]:
        return replace(demo, messages=messages, source=SOURCE, replaced_replies=replaced)
    rewards = [*demo.rewards[:turn], 0.0]
    return replace(
        demo,
        messages=messages[: at + 1],
        actions=[*demo.actions[:turn], action],
        rewards=rewards,
        episode_return=sum(rewards),
        length=turn + 1,
        end="truncated",
        source=SOURCE,
        replaced_replies={at: told for at, told in replaced.items() if at <= turn} if replaced else replaced,
    )


def legal_action(reply: str, agent: AgentBase) -> object:
    """The action that a reply names.

    Raises:
        ActionParseError: it names none, or none that there is.
    """
    reading = agent.read(reply)
    if reading.failed:
        raise ActionParseError(f"The agent reads no action in this reply; it reads {agent.format_action(0)}, say.")
    known = len(agent.action_names)
    if known and reading.action not in range(known):
        raise ActionParseError(f"The reply names {reading.action!r}, and there is no such action.")
    return reading.action


def _index(path: Path, lines: Sequence[bytes | None], content: bytes) -> int:
    try:
        return lines.index(content)
    except ValueError as error:
        raise DemoFileError(f"The episode is no longer in {path}: another program changed it; open it anew.") from error


def _rewrite(path: Path, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
    try:
        jsonl.rewrite(path, change, is_whole=is_whole)
    except Timeout as error:
        raise DemoFileError(f"{path} is held by another program; try again when that one is done.") from error
    except OSError as error:
        raise DemoFileError(
            f"{path} was not changed ({error.strerror or error}); make room, or check its rights."
        ) from error
