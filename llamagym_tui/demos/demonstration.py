"""`Demonstration`: one finished episode as data to train on, a line of JSON with TRL's ``messages``."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from llamagym_tui.demos import jsonl
from llamagym_tui.errors import DemoFileError
from llamagym_tui.game.agent_base import AgentBase, prompt_sha256
from llamagym_tui.game.chat import (
    ChatMessage,
    Conversation,
    Preference,
    assistant,
    opening,
    user,
    with_actions,
)

SCHEMA = 1
"""Raised with every change that an older reader would misread."""
MOST_LINE, MOST_DEEP = jsonl.MOST_LINE, 50
"""Bytes of a demonstration that is read, and lists and objects within each other in an action or an argument."""


class Turn(NamedTuple):
    """A turn as it was played."""

    observation: str
    admissible: Sequence[str] | None
    """Names of the actions that were admissible. None: those of every turn."""
    reply: str
    action: Any
    reward: float


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
    length: int
    """Turns."""
    end: Literal["terminated", "truncated"]
    source: str
    """Whose play: ``human``, ``correction`` (a person in the model's place), ``expert`` or ``model``."""
    model: str | None
    """Which model wrote the replies. None: none did."""
    prompt_sha256: str
    recorded_at: str
    """UTC, ISO 8601 with Z."""
    schema: int = SCHEMA
    replaced_replies: dict[int, str] | UnsetType = UNSET
    """The model's own replies in the turns (from 0) in which a person acted in its place; only those turns are
    trained on. Absent: one player took all turns."""
    admissible: list[list[str] | None] | UnsetType = UNSET
    """Names of the actions that were admissible in each turn; None: those of every turn. Absent: so it was in all."""

    @classmethod
    def of(
        cls,
        agent: AgentBase,
        agent_name: str,
        prompt: str,
        turns: Sequence[Turn],
        *,
        end: Literal["terminated", "truncated"],
        source: str,
        recorded_at: datetime,
        seed: int | None = None,
        model: str | None = None,
        replaced_replies: dict[int, str] | UnsetType = UNSET,
    ) -> "Demonstration":
        """An episode that has just ended; what follows from these arguments (length, return, hash) is computed."""
        admissible = [None if turn.admissible is None else list(turn.admissible) for turn in turns]
        return cls(
            messages=conversation(prompt, turns),
            agent=agent_name,
            env_id=agent.env_id,
            env_kwargs=dict(agent.env_kwargs),
            seed=seed,
            actions=[turn.action for turn in turns],
            rewards=[turn.reward for turn in turns],
            episode_return=sum(turn.reward for turn in turns),
            length=len(turns),
            end=end,
            source=source,
            model=model,
            prompt_sha256=prompt_sha256(prompt),
            recorded_at=utc_timestamp(recorded_at),
            replaced_replies=replaced_replies,
            admissible=admissible if any(admissible) else UNSET,
        )

    @property
    def system_prompt(self) -> str:
        """Empty if there is none."""
        first = self.messages[:1]
        return first[0]["content"] if first and first[0]["role"] == "system" else ""

    @property
    def observations(self) -> list[str]:
        return [message["content"] for message in self.messages if message["role"] == "user"]

    @property
    def replies(self) -> list[str]:
        return [message["content"] for message in self.messages if message["role"] == "assistant"]

    @property
    def corrected(self) -> dict[int, str]:
        """`replaced_replies`, empty where there are none."""
        return self.replaced_replies or {}

    def admissible_in(self, turn: int) -> list[str] | None:
        """Names of the actions that were admissible in a turn (from 0). None: all that the agent names."""
        return self.admissible[turn] if self.admissible and turn < len(self.admissible) else None

    @property
    def lesson(self) -> Conversation:
        """The messages to train on, with the admissible actions of each turn: the model's own replies next to a
        person's turns have a weight of 0."""
        lesson, turn = with_actions(self.messages, self.admissible or ()), 0
        for at, message in enumerate(self.messages):
            if message["role"] == "assistant":
                if self.corrected and turn not in self.corrected:
                    lesson[at] = {**message, "weight": 0}
                turn += 1
        return lesson

    @property
    def preferences(self) -> list[Preference]:
        """A person's reply over the model's own, for each turn in which the two differ."""
        lesson = self.lesson
        replies = [at for at, message in enumerate(lesson) if message["role"] == "assistant"]
        return [
            Preference(lesson[:at], lesson[at]["content"], own)
            for turn, own in sorted(self.corrected.items())
            if own != lesson[at := replies[turn]]["content"]
        ]


def conversation(prompt: str, turns: Iterable[Turn]) -> Conversation:
    """The messages of an episode so far."""
    return [
        *opening(prompt),
        *(each for turn in turns for each in (user(turn.observation), assistant(turn.reply))),
    ]


def utc_timestamp(now: datetime) -> str:
    """A time zone aware moment as `recorded_at` has it."""
    return now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def encode(demo: Demonstration) -> bytes:
    """A demonstration as one line of JSON without its newline; NumPy numbers become plain ones.

    Raises DemoFileError if JSON cannot hold a value of it (an object, a number that is not finite).
    """
    try:
        line = msgspec.json.encode(demo, enc_hook=_plain)
        decode(line)
    except (TypeError, NotImplementedError, ValueError, RecursionError) as error:
        raise DemoFileError(
            f"The episode cannot be written as JSON and was not saved: {error}."
        ) from error
    return line


def decode(line: bytes) -> Demonstration:
    """Raises ValueError if the line is no JSON, or not of this form, or beyond the bounds."""
    if len(line) >= MOST_LINE:
        raise ValueError(f"it has over {MOST_LINE:,} bytes")
    try:
        demo = msgspec.json.decode(line, type=Demonstration)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    level: list[Any] = [*demo.env_kwargs.values(), *demo.actions]
    for _ in range(MOST_DEEP):
        outer = [
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list)
        ]
        level = [inner for each in outer for inner in each]
    if level:
        raise ValueError(f"a value is nested deeper than {MOST_DEEP}")
    return demo


def readable(line: bytes) -> Demonstration | None:
    """The demonstration in a line; None: it holds none."""
    try:
        return decode(line)
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} is not data")
