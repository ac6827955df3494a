"""`Demonstration`: one finished episode as data to train on, a line of JSON with TRL's ``messages``."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

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
from llamagym_tui.protocol.events import EpisodeCorrected

SCHEMA = 1
"""Version of the form of a line; it goes up with every change that an older reader would misread."""
MOST_LINE = 16 * 2**20
"""Bytes in which a demonstration and its line's end have to fit."""


class PlayedTurn(NamedTuple):
    """A turn as it was played."""

    observation: str
    """The user message."""
    admissible: Sequence[str] | None
    """Names of the admissible actions; None for all."""
    reply: str
    action: Any
    """The action that the environment received."""
    reward: float


class Demonstration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished episode, with what is needed to train on it and to know where it came from."""

    messages: list[ChatMessage]
    """The conversation: system, user, assistant, user, assistant …, with one assistant message for each turn."""
    agent: str
    """Short name of the agent whose prompting was used."""
    env_id: str
    env_kwargs: dict[str, Any]
    seed: int | None
    """Seed of the reset; None if unknown."""
    actions: list[Any]
    """The actions that the environment received, turn by turn."""
    rewards: list[float]
    """The environment's rewards, turn by turn, without penalties."""
    episode_return: float
    length: int
    """The number of turns."""
    end: Literal["terminated", "truncated"]
    source: str
    """The player: ``human``, ``correction`` (a person in the model's place), ``expert`` or ``model``."""
    model: str | None
    """The model that wrote the replies, if one did."""
    prompt_sha256: str
    """Digest of the system prompt."""
    recorded_at: str
    """UTC, ISO 8601 with Z."""
    schema: int = msgspec.field(default_factory=lambda: SCHEMA)  # written, too
    replaced_replies: dict[int, str] = {}
    """The model's own replies in the turns (counted from 0) in which a person acted in its place; only those turns are
    trained on. Empty: one player took all turns."""
    admissible: list[list[str] | None] = []
    """Names of the admissible actions of each turn, None for all; empty if all were admissible in every turn."""

    @classmethod
    def of(
        cls,
        agent: AgentBase,
        agent_name: str,
        prompt: str,
        turns: Sequence[PlayedTurn],
        *,
        end: Literal["terminated", "truncated"],
        source: str,
        recorded_at: datetime,
        seed: int | None = None,
        model: str | None = None,
        replaced_replies: Mapping[int, str] = MappingProxyType({}),
    ) -> "Demonstration":
        """An episode that has just ended; its length, return and digest are computed from the arguments."""
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
            recorded_at=f"{recorded_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            replaced_replies=dict(replaced_replies),
            admissible=admissible if any(admissible) else [],
        )

    @classmethod
    def of_correction(
        cls,
        agent: AgentBase,
        agent_name: str,
        episode: EpisodeCorrected,
        *,
        model: str,
        recorded_at: datetime,
    ) -> "Demonstration":
        """An episode in which a person had the wheel; the model's own replies need not name an action."""
        turns: list[PlayedTurn] = []
        replaced: dict[int, str] = {}
        for number, turn in enumerate(episode.turns):
            admissible = episode.admissible[number] if episode.admissible else None
            reading = agent.read(turn.reply)
            action = turn.action if reading.failed else reading.action
            observation = episode.observations[number]
            turns.append(PlayedTurn(observation, admissible, turn.reply, action, turn.reward))
            if turn.replaced is not None:
                replaced[number] = turn.replaced
        return cls.of(
            agent,
            agent_name,
            episode.started.system_prompt,
            turns,
            end=episode.finished.end,
            source="correction",
            recorded_at=recorded_at,
            model=model,
            replaced_replies=replaced,
        )

    @property
    def system_prompt(self) -> str:
        """The system message; empty if there is none."""
        if not self.messages or self.messages[0]["role"] != "system":
            return ""
        return self.messages[0]["content"]

    @property
    def replies(self) -> list[str]:
        """The assistant messages, turn by turn."""
        return [message["content"] for message in self.messages if message["role"] == "assistant"]

    @property
    def lesson(self) -> Conversation:
        """The messages to train on, with the admissible actions of each turn.

        If a person corrected the episode, the model's own replies in the other turns have a weight of 0.
        """
        lesson = with_actions(self.messages, self.admissible)
        if self.replaced_replies:
            for turn, index in enumerate(_reply_indices(lesson)):
                if turn not in self.replaced_replies:
                    lesson[index] = {**lesson[index], "weight": 0}
        return lesson

    @property
    def preferences(self) -> list[Preference]:
        """A person's reply over the model's own, for each turn in which the two differ."""
        lesson = self.lesson
        reply_indices = _reply_indices(lesson)
        found = []
        for turn, models_reply in sorted(self.replaced_replies.items()):
            index = reply_indices[turn]
            persons_reply = lesson[index]["content"]
            if persons_reply != models_reply:
                found.append(Preference(lesson[:index], persons_reply, models_reply))
        return found


def _reply_indices(messages: Conversation) -> list[int]:
    """Where the assistant messages are, turn by turn."""
    return [index for index, message in enumerate(messages) if message["role"] == "assistant"]


def conversation(prompt: str, turns: Iterable[PlayedTurn]) -> Conversation:
    """The messages of an episode so far."""
    messages = opening(prompt)
    for turn in turns:
        messages.append(user(turn.observation))
        messages.append(assistant(turn.reply))
    return messages


def encode(demo: Demonstration) -> bytes:
    """A demonstration as one line of JSON without its line end; NumPy numbers become plain ones.

    Raises DemoFileError if JSON cannot hold a value of it (an object, a number that is not finite).
    """
    try:
        line = msgspec.json.encode(demo, enc_hook=_plain)
        decode(line)  # what is written can be read again
    except (TypeError, NotImplementedError, ValueError, RecursionError) as error:
        raise DemoFileError(
            f"The episode cannot be written as JSON and was not saved: {error}."
        ) from error
    return line


def decode(line: bytes) -> Demonstration:
    """The demonstration in a line; raises ValueError if it is no such JSON, or too long or nested too deep."""
    if len(line) >= MOST_LINE:
        raise ValueError(f"it has over {MOST_LINE:,} bytes")
    try:
        return msgspec.json.decode(line, type=Demonstration)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _plain(value: Any) -> Any:
    """A mapping, or a number or array of NumPy, as something that JSON knows."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} is not data")
