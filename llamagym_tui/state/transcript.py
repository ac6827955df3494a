"""The conversation of one environment as a bounded list of facts, in the order in which they came.

Entries have serial numbers that only grow, and the garbage collector, which would look through all, tracks none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from llamagym_tui.protocol.events import (
    ActionsWeighed,
    ConversationEvent,
    EpisodeDropped,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TokensStreamed,
    TurnFinished,
)

MAX_ENTRIES = 8_192
"""Entries kept, those of about 1,600 turns of short episodes; the oldest go first, a page at a time."""
PAGE = 128
"""Entries that are let go together."""
MAX_ENTRY = 8_000
"""Characters kept of one text."""


class Reply(Struct, frozen=True, gc=False):
    """The agent's reply in a turn, so far."""

    episode: int
    turn: int
    text: str
    done: bool = False
    """Whether the turn is over; otherwise text may still come."""
    by_person: bool = False
    """Whether a person acted in the agent's place."""


class Notice(Struct, frozen=True, gc=False):
    """Something that happened to the run, shown between the lines of the conversation."""

    text: str


Fact = (
    ActionsWeighed
    | EpisodeStarted
    | ObservationShown
    | Reply
    | TurnFinished
    | EpisodeFinished
    | Notice
)


class Entry(Struct, frozen=True, gc=False):
    serial: int
    fact: Fact


@dataclass(frozen=True)
class Transcript:
    pages: tuple[tuple[Entry, ...], ...] = ()
    """The entries; all pages but the last are full, and an event copies that one alone."""
    next_serial: int = 0

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(chain.from_iterable(self.pages))

    @property
    def _last(self) -> Entry | None:
        return self.pages[-1][-1] if self.pages else None

    def after(self, event: ConversationEvent) -> Transcript:
        match event:
            case TokensStreamed():
                return self._reply_grown(event)
            case TurnFinished():
                by_person = event.replaced is not None
                reply = Reply(
                    event.episode, event.turn, clipped(event.reply), done=True, by_person=by_person
                )
                outcome = replace(
                    event,
                    reply="",
                    action=None,
                    action_name=clipped(event.action_name),
                    replaced=clipped(event.replaced) if event.replaced is not None else None,
                    replaced_action=clipped(event.replaced_action),
                )
                is_open = self._open_reply(reply.episode, reply.turn) is not None
                return (self._last_replaced(reply) if is_open else self._appended(reply))._appended(
                    outcome
                )
            case ObservationShown():
                return self._appended(replace(event, text=clipped(event.text), actions=None))
            case EpisodeStarted():
                return self._appended(replace(event, system_prompt=clipped(event.system_prompt)))
            case EpisodeFinished() | ActionsWeighed():
                return self._appended(event)
            case EpisodeDropped():
                last = self._last.fact if self._last else None
                settled = (
                    self._last_replaced(replace(last, done=True))
                    if isinstance(last, Reply)
                    else self
                )
                return settled.note(f"Episode {event.episode:,} was dropped: {event.reason}.")

    def note(self, text: str) -> Transcript:
        return self._appended(Notice(clipped(text)))

    def _reply_grown(self, event: TokensStreamed) -> Transcript:
        last = self._open_reply(event.episode, event.turn)
        if last is None:
            return self._appended(Reply(event.episode, event.turn, clipped(event.text)))
        if len(last.text) > MAX_ENTRY:
            return self
        return self._last_replaced(replace(last, text=clipped(last.text + event.text)))

    def _open_reply(self, episode: int, turn: int) -> Reply | None:
        fact = self._last.fact if self._last else None
        return (
            fact
            if isinstance(fact, Reply) and (fact.episode, fact.turn) == (episode, turn)
            else None
        )

    def _last_replaced(self, fact: Fact) -> Transcript:
        *page, last = self.pages[-1]
        if last.fact == fact:
            return self
        return Transcript((*self.pages[:-1], (*page, Entry(last.serial, fact))), self.next_serial)

    def tail(self, entries: int) -> Transcript:
        """The same with so many of its last entries."""
        if len(self.entries) <= entries:
            return self
        kept = self.entries[-entries:]
        return Transcript(
            tuple(kept[at : at + PAGE] for at in range(0, len(kept), PAGE)), self.next_serial
        )

    def _appended(self, fact: Fact) -> Transcript:
        *before, last = self.pages or ((),)
        entry = Entry(self.next_serial, fact)
        if len(last) < PAGE:
            return Transcript((*before, (*last, entry)), self.next_serial + 1)
        return Transcript((*self.pages[1 - MAX_ENTRIES // PAGE :], (entry,)), self.next_serial + 1)


def clipped(text: str) -> str:
    """A text of at most about `MAX_ENTRY` characters, with the number of those that are missing."""
    if len(text) <= MAX_ENTRY:
        return text
    return f"{text[:MAX_ENTRY]} … ({len(text) - MAX_ENTRY:,} more characters)"


def is_message(fact: Fact) -> bool:
    """Whether it holds text, rather than figures."""
    return isinstance(fact, ObservationShown | Reply | Notice)
