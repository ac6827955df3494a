"""The conversation of one environment as a bounded list of facts, in the order in which they were told.

Entries carry serial numbers that only grow, so that a widget can tell what is new, what changed and what was let go.
Used for the watched environment and for a person's table alike; knows nothing of how it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from llamagym_tui.protocol.events import (
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TokensStreamed,
    TurnFinished,
)

MAX_ENTRIES = 400
"""Entries kept; the oldest go first."""
MAX_CHARACTERS = 200_000
"""Characters kept over all entries."""
MAX_ENTRY = 8_000
"""Characters kept of one text."""


class Reply(NamedTuple):
    """What the agent said in a turn, so far."""

    episode: int
    turn: int
    text: str
    done: bool = False
    """Whether the turn is over; text may still come otherwise."""


class Notice(NamedTuple):
    """Something that happened to the run, told between the lines of the conversation."""

    text: str


Fact = EpisodeStarted | ObservationShown | Reply | TurnFinished | EpisodeFinished | Notice
ConversationEvent = EpisodeStarted | ObservationShown | TokensStreamed | TurnFinished | EpisodeFinished


class Entry(NamedTuple):
    """A fact and its place in the conversation."""

    serial: int
    fact: Fact


@dataclass(frozen=True, slots=True)
class Transcript:
    """The last entries of a conversation."""

    entries: tuple[Entry, ...] = ()
    next_serial: int = 0
    characters: int = 0
    """Over all entries, within `MAX_CHARACTERS` and one entry."""

    def tell(self, event: ConversationEvent) -> Transcript:
        """The transcript after an event of its environment."""
        match event:
            case TokensStreamed():
                return self._reply_grown(event)
            case TurnFinished():
                said = Reply(event.episode, event.turn, clipped(event.reply), done=True)
                name = clipped(event.action_name)
                return self._reply_settled(said)._appended(replace(event, reply="", action=None, action_name=name))
            case ObservationShown():
                return self._appended(replace(event, text=clipped(event.text)))
            case EpisodeStarted():
                return self._appended(replace(event, system_prompt=clipped(event.system_prompt)))
            case EpisodeFinished():
                return self._appended(event)

    def note(self, text: str) -> Transcript:
        """The transcript with a notice at its end."""
        return self._appended(Notice(clipped(text)))

    def _reply_grown(self, event: TokensStreamed) -> Transcript:
        last = self._open_reply(event.episode, event.turn)
        if last is None:
            return self._appended(Reply(event.episode, event.turn, clipped(event.text)))
        if len(last.text) > MAX_ENTRY:
            return self
        return self._last_replaced(last._replace(text=clipped(last.text + event.text)))

    def _reply_settled(self, reply: Reply) -> Transcript:
        """The streamed reply gives way to the whole one."""
        if self._open_reply(reply.episode, reply.turn) is None:
            return self._appended(reply)
        return self._last_replaced(reply)

    def _open_reply(self, episode: int, turn: int) -> Reply | None:
        fact = self.entries[-1].fact if self.entries else None
        return fact if isinstance(fact, Reply) and (fact.episode, fact.turn) == (episode, turn) else None

    def _last_replaced(self, fact: Fact) -> Transcript:
        last = self.entries[-1]
        if last.fact == fact:
            return self
        characters = self.characters - _size(last.fact) + _size(fact)
        return Transcript((*self.entries[:-1], Entry(last.serial, fact)), self.next_serial, characters)

    def _appended(self, fact: Fact) -> Transcript:
        entries = (*self.entries, Entry(self.next_serial, fact))
        characters = self.characters + _size(fact)
        drop = max(0, len(entries) - MAX_ENTRIES)
        characters -= sum(_size(entry.fact) for entry in entries[:drop])
        while characters > MAX_CHARACTERS and drop < len(entries) - 1:
            characters -= _size(entries[drop].fact)
            drop += 1
        return Transcript(entries[drop:], self.next_serial + 1, characters)


def clipped(text: str) -> str:
    """A text of at most about `MAX_ENTRY` characters; what is missing is said."""
    if len(text) <= MAX_ENTRY:
        return text
    return f"{text[:MAX_ENTRY]} … ({len(text) - MAX_ENTRY:,} more characters)"


def _size(fact: Fact) -> int:
    """Characters that a fact holds."""
    match fact:
        case EpisodeStarted():
            return len(fact.system_prompt)
        case ObservationShown() | Reply() | Notice():
            return len(fact.text)
        case TurnFinished():
            return len(fact.action_name)
        case EpisodeFinished():
            return 0
