"""The watched environment in bounded memory: its conversation as facts in their order, and its drawing.

Entries have serial numbers that only grow. The garbage collector does not track them, because there are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replace_fields

from msgspec import Struct
from msgspec.structs import replace

from llamagym_tui.protocol.events import (
    ActionsProbed,
    AnyEvent,
    EpisodeDropped,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    StateDrawn,
    TokensStreamed,
    TurnFinished,
    WatchChanged,
    WatchedEvent,
)

MAX_ENTRIES = 8_192
"""Most entries that are kept, enough for some 1,600 turns of short episodes; the oldest go first."""
MAX_ENTRY = 8_000
"""Most characters that are kept of a text."""
MAX_PLACES = 256
"""Most places of a kind that are kept of a drawing."""


class ReplySoFar(Struct, frozen=True, gc=False):
    """The agent's reply in a turn, so far."""

    episode: int
    turn: int
    text: str
    done: bool = False
    """True once the turn is over; until then more text may come."""
    by_person: bool = False
    """True if a person acted in the agent's place."""


class Notice(Struct, frozen=True, gc=False):
    """Something that happened to the run, shown between the lines of the conversation."""

    text: str


Fact = (
    ActionsProbed
    | EpisodeStarted
    | ObservationShown
    | ReplySoFar
    | TurnFinished
    | EpisodeFinished
    | Notice
)
"""Kinds of entries."""


class Entry(Struct, frozen=True, gc=False):
    """A fact with its place in the conversation."""

    serial: int
    fact: Fact


@dataclass(frozen=True)
class Transcript:
    """The conversation so far."""

    entries: tuple[Entry, ...] = ()
    """The entries, in order."""
    next_serial: int = 0
    notice: Notice | None = None
    """The newest notice."""

    @property
    def _last_fact(self) -> Fact | None:
        """The fact of the last entry, if there are entries."""
        return self.entries[-1].fact if self.entries else None

    def after(self, event: WatchedEvent) -> Transcript:
        """The conversation with one more event."""
        match event:
            case TokensStreamed():
                return self._reply_grown(event)
            case TurnFinished():
                return self._turn_finished(event)
            case ObservationShown():
                return self._appended(replace(event, text=clipped(event.text), actions=None))
            case EpisodeStarted():
                return self._appended(replace(event, system_prompt=clipped(event.system_prompt)))
            case EpisodeFinished() | ActionsProbed():
                return self._appended(event)
            case EpisodeDropped():
                settled = self
                last = self._last_fact
                if isinstance(last, ReplySoFar):
                    settled = self._last_replaced(replace(last, done=True))
                return settled.note(f"Episode {event.episode:,} was dropped: {event.reason}.")
            case StateDrawn():
                return self

    def note(self, text: str) -> Transcript:
        """The conversation with a notice at its end."""
        notice = Notice(clipped(text))
        return replace_fields(self._appended(notice), notice=notice)

    def _turn_finished(self, event: TurnFinished) -> Transcript:
        """The conversation with a whole reply, and after it what came of it."""
        reply = ReplySoFar(
            event.episode,
            event.turn,
            clipped(event.reply),
            done=True,
            by_person=event.replaced is not None,
        )
        if self._open_reply(event.episode, event.turn) is not None:
            replied = self._last_replaced(reply)
        else:
            replied = self._appended(reply)
        outcome = replace(
            event,
            reply="",
            action=None,
            action_name=clipped(event.action_name),
            replaced=None if event.replaced is None else clipped(event.replaced),
            replaced_action=clipped(event.replaced_action),
        )
        return replied._appended(outcome)

    def _reply_grown(self, event: TokensStreamed) -> Transcript:
        """The conversation with more text of the reply under way."""
        last = self._open_reply(event.episode, event.turn)
        if last is None:
            return self._appended(ReplySoFar(event.episode, event.turn, clipped(event.text)))
        if len(last.text) > MAX_ENTRY:
            return self
        return self._last_replaced(replace(last, text=clipped(last.text + event.text)))

    def _open_reply(self, episode: int, turn: int) -> ReplySoFar | None:
        """The reply of a turn, if it is the last entry."""
        fact = self._last_fact
        if isinstance(fact, ReplySoFar) and fact.episode == episode and fact.turn == turn:
            return fact
        return None

    def _last_replaced(self, fact: Fact) -> Transcript:
        """The conversation with another fact in its last entry."""
        last = self.entries[-1]
        if last.fact == fact:
            return self
        entries = (*self.entries[:-1], Entry(last.serial, fact))
        return Transcript(entries, self.next_serial, self.notice)

    def tail(self, entries: int) -> Transcript:
        """The conversation with its last entries alone."""
        return Transcript(self.entries[-entries:], self.next_serial, self.notice)

    def _appended(self, fact: Fact) -> Transcript:
        """The conversation with an entry at its end; if there are too many, the oldest goes."""
        kept = self.entries[-(MAX_ENTRIES - 1) :]
        entries = (*kept, Entry(self.next_serial, fact))
        return Transcript(entries, self.next_serial + 1, self.notice)


def clipped(text: str) -> str:
    """At most the first `MAX_ENTRY` characters of a text, with the number of those that are missing."""
    if len(text) <= MAX_ENTRY:
        return text
    return f"{text[:MAX_ENTRY]} … ({len(text) - MAX_ENTRY:,} more characters)"


class StateView(Struct, frozen=True, kw_only=True):
    """The drawing of the watched state; the last state of an episode stays until the next episode begins."""

    drawn: StateDrawn | None = None
    """The drawing of the shown state, if there is one."""
    finished: EpisodeFinished | None = None
    """The watched episode that ended last."""
    probed: ActionsProbed | None = None
    """The last probabilities of actions; they are of the drawn state if they are of its turn."""
    acted: TurnFinished | None = None
    """The watched turn that ended last, without its texts."""
    seen: str = ""
    """The observation that was shown last, in the agent's words."""

    @property
    def result(self) -> EpisodeFinished | None:
        """The end of the drawn episode; None while it is under way."""
        if self.drawn is None or self.finished is None:
            return None
        last_state = (self.finished.episode, self.finished.length)
        return self.finished if (self.drawn.episode, self.drawn.turn) == last_state else None

    def after(self, event: AnyEvent) -> StateView:
        """The record after an event; the same object if that changes nothing."""
        drawn = self.drawn
        match event:
            case StateDrawn():
                bounded = replace(
                    event,
                    text=clipped(event.text),
                    grounds=event.grounds[:MAX_PLACES],
                )
                return replace(self, drawn=bounded)
            case EpisodeFinished():
                return replace(self, finished=event)
            case ActionsProbed():
                return replace(self, probed=event)
            case TurnFinished():
                return replace(self, acted=replace(event, reply="", words="", replaced=None))
            case ObservationShown():
                if drawn is not None and (drawn.episode, drawn.turn) != (event.episode, event.turn):
                    drawn = None
                return replace(self, drawn=drawn, seen=clipped(event.text))
            case WatchChanged():
                return replace(self, drawn=None)
            case _:
                return self
