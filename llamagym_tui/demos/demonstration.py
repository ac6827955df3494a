"""`Demonstration`: one finished episode as data to train on, and its one line of JSON.

``messages`` is TRL's conversational form, so a file of such lines is a dataset as it is; the other fields say where
the episode came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from llamagym_tui.errors import DemoFileError
from llamagym_tui.game.chat import ChatMessage, Conversation

SCHEMA = 1
"""Raised with every change that an older reader would misread."""


class Demonstration(Struct, frozen=True, kw_only=True):
    """One finished episode, with what is needed to train on it and to know where it came from."""

    messages: list[ChatMessage]
    """System, user, assistant, user, assistant …: one assistant message a turn."""
    agent: str
    """Short name of the agent whose prompting was used."""
    env_id: str
    env_kwargs: dict[str, Any]
    seed: int | None
    """Seed of the reset. None: not known."""
    actions: list[Any]
    """What the environment got, turn by turn."""
    rewards: list[float]
    """The environment's rewards, turn by turn, without penalties."""
    episode_return: float
    """Sum of `rewards`."""
    length: int
    """Turns."""
    end: Literal["terminated", "truncated"]
    source: str
    """Whose play: ``human``, ``correction`` (a person in the model's place), ``expert`` or ``model``."""
    model: str | None
    """Which model said it. None: none did."""
    prompt_sha256: str
    """Hex digest of the system prompt."""
    recorded_at: str
    """UTC, ISO 8601 with Z."""
    schema: int = SCHEMA
    replaced_replies: dict[int, str] | UnsetType = UNSET
    """What the model would have said in the turns (from 0) in which a person acted in its place; those turns alone
    are trained on. Absent: all turns are of one hand."""

    @property
    def corrected(self) -> dict[int, str]:
        """`replaced_replies`, empty where there are none."""
        return self.replaced_replies or {}

    @property
    def lesson(self) -> Conversation:
        """The messages to train on: what a model said around a person's turns has a weight of 0."""
        lesson, turn = list(self.messages), 0
        for at, message in enumerate(self.messages):
            if message["role"] == "assistant":
                if self.corrected and turn not in self.corrected:
                    lesson[at] = {**message, "weight": 0}
                turn += 1
        return lesson


def utc_timestamp(now: datetime) -> str:
    """A time zone aware moment as `recorded_at` has it."""
    return now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def encode(demo: Demonstration) -> bytes:
    """A demonstration as one line of JSON, without its end; numbers of numpy become plain ones.

    Raises:
        DemoFileError: something in it has no place in JSON (an object, a number that is not finite).
    """
    try:
        line = msgspec.json.encode(demo, enc_hook=_plain)
        decode(line)
    except (TypeError, NotImplementedError, msgspec.MsgspecError) as error:
        raise DemoFileError(f"The episode cannot be told in JSON and was not saved: {error}.") from error
    return line


def decode(line: bytes) -> Demonstration:
    """The demonstration of one line.

    Raises:
        msgspec.DecodeError: the line is no JSON, or not of this form.
    """
    return msgspec.json.decode(line, type=Demonstration)


def is_whole(line: bytes) -> bool:
    """Whether a line is a demonstration from its first to its last byte."""
    try:
        decode(line)
    except msgspec.DecodeError:
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} is not data")
