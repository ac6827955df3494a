"""Changes to recorded episodes: delete them from a file, put them back, edit a reply.

Nothing recorded is lost. A file is replaced as a whole, under the same lock as when a line is added, and removed lines
are first written to ``<path>.trash``. Lines are recognised by their bytes, so that lines which another program adds in
the meantime stay. If a line is no longer there, or nothing can be written, DemoFileError is raised and the file is
unchanged.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from llamagym_tui.demos import jsonl
from llamagym_tui.demos.demonstration import Demonstration, readable
from llamagym_tui.demos.files import file_errors
from llamagym_tui.errors import ActionParseError, DemoFileError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import assistant
from llamagym_tui.game.observed import reply_of

SOURCE = "correction"
"""Source of an episode in which a person has edited a reply."""


class Removed(NamedTuple):
    """A line that was removed from a file."""

    place: int
    """Index of the line before the removal, from 0."""
    content: bytes
    """The line without its end."""


def trash_path(path: Path) -> Path:
    """The file for removed lines; the app never empties it."""
    return path.with_name(f"{path.name}.trash")


def remove(path: Path, contents: Sequence[bytes]) -> list[Removed]:
    """Move lines from a file to its trash, one line for each content."""
    removed: list[Removed] = []

    def change(lines: list[bytes]) -> list[bytes]:
        left: list[bytes | None] = [*lines]
        for content in contents:
            index = _index(path, left, content)
            left[index] = None
            removed.append(Removed(index, content))
        for line in removed:
            jsonl.append_line(trash_path(path), line.content, is_whole=readable)
        return [line for line in left if line is not None]

    _rewrite(path, change)
    return sorted(removed)


def put_back(path: Path, removed: Sequence[Removed]) -> None:
    """Move removed lines from the trash back to their places; if that fails, they are in the trash or in both files."""

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
    """Replace one line by another."""

    def change(lines: list[bytes]) -> list[bytes]:
        lines[_index(path, lines, old)] = new
        return lines

    _rewrite(path, change)


def with_reply(demo: Demonstration, turn: int, reply: str, agent: AgentBase) -> Demonstration:
    """The episode with another reply in a turn, counted from 0; its source becomes a correction.

    If the reply names the same action, nothing else changes. If it names another action, the episode ends there, as
    truncated and with reward 0, because the rest that was recorded did not follow from this action.

    Raises:
        ActionParseError: as `legal_action`.
    """
    action = legal_action(reply, agent, demo.admissible_in(turn))
    replies = [
        index for index, message in enumerate(demo.messages) if message["role"] == "assistant"
    ]
    index = replies[turn]
    messages = list(demo.messages)
    messages[index] = assistant(reply)
    replaced = demo.replaced_replies
    if demo.corrected:  # else this turn would have no place among those that are trained on
        replaced = {turn: demo.messages[index]["content"], **demo.corrected}
    if action == demo.actions[turn]:
        return replace(demo, messages=messages, source=SOURCE, replaced_replies=replaced)
    if replaced:
        replaced = {earlier: old for earlier, old in replaced.items() if earlier <= turn}
    admissible = demo.admissible
    if admissible:
        admissible = admissible[: turn + 1]
    rewards = [*demo.rewards[:turn], 0.0]
    return replace(
        demo,
        messages=messages[: index + 1],
        actions=[*demo.actions[:turn], action],
        rewards=rewards,
        episode_return=sum(rewards),
        length=turn + 1,
        end="truncated",
        source=SOURCE,
        replaced_replies=replaced,
        admissible=admissible,
    )


def legal_action(reply: str, agent: AgentBase, admissible: Sequence[str] | None = None) -> object:
    """The action that a reply names, if it can be taken.

    Args:
        admissible: names of the actions that are admissible in the reply's turn. None: all actions.
    Raises:
        ActionParseError: the agent reads no action in the reply, or one that cannot be taken.
    """
    reading = agent.read(reply)
    if reading.failed:
        example = agent.format_action(0) if admissible is None else reply_of(agent, admissible[0])
        raise ActionParseError(
            f"The agent reads no action in this reply; for example, {example} names one."
        )
    if admissible is not None:
        name = agent.action_name(reading.action)
        if name not in admissible:
            raise ActionParseError(f"The reply names {name!r}, which cannot be done in that turn.")
    known = len(agent.action_names)
    if known and reading.action not in range(known):
        raise ActionParseError(
            f"The reply names {reading.action!r}, which is no action of this game."
        )
    return reading.action


def _index(path: Path, lines: Sequence[bytes | None], content: bytes) -> int:
    try:
        return lines.index(content)
    except ValueError as error:
        raise DemoFileError(
            f"The episode is no longer in {path}: another program changed it; open it again."
        ) from error


def _rewrite(path: Path, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
    with file_errors(f"{path} was not changed", "make room, or check its rights"):
        jsonl.rewrite(path, change, is_whole=readable)
