"""``events.jsonl``: the events of a session, one JSON object a line, in order.

The file grows with time, not with speed. Tokens are left out (the whole reply is in ``TurnFinished``), and of the
watched episodes only as many are kept, each of them whole, as the budget of `CONVERSATION_EVENTS_PER_S` allows. All
other events are kept; the session emits them at a bounded rate. A line torn by a crash is skipped when reading and cut
off when the log is opened again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from llamagym_tui.errors import RunStoreError
from llamagym_tui.protocol.events import (
    AnyEvent,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    ObservationShown,
    StateDrawn,
    TokensStreamed,
    TurnFinished,
)
from llamagym_tui.user_files import growing_file, regular_file, torn_line_start

CONVERSATION_EVENTS_PER_S = 10.0
"""Events of watched episodes that are kept, on average over a run."""
CONVERSATION_BURST = 40.0
"""Events that may be kept at once after a quiet while."""
MOST_LINE = 16 * 2**20
"""Bytes of an event that is read."""
FLUSH_EVERY_S = 1.0
"""Seconds after which an event stands in the file at the latest, once another one comes."""

_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class ConversationBudget:
    """Which watched episodes are kept: whole ones, as often as their events can be afforded.

    An episode is kept if the budget is not overdrawn at its start, and may overdraw it; the debt is paid by time.
    """

    def __init__(self) -> None:
        self._budget = CONVERSATION_BURST
        self._at_s = 0.0
        self._kept_episode: int | None = None

    def keeps(self, event: Event) -> bool:
        """Whether an event belongs into the file."""
        if isinstance(event, TokensStreamed):
            return False
        if not isinstance(event, EpisodeStarted | StateDrawn | ObservationShown | TurnFinished | EpisodeFinished):
            return True
        if isinstance(event, EpisodeStarted):
            self._earn(event.at_s)
            self._kept_episode = event.episode if self._budget > 0 else None
        if event.episode != self._kept_episode:
            return False
        self._budget -= 1
        return True

    def _earn(self, at_s: float) -> None:
        earned = max(0.0, at_s - self._at_s) * CONVERSATION_EVENTS_PER_S
        self._budget = min(CONVERSATION_BURST, self._budget + earned)
        self._at_s = at_s


class EventLog:
    """An ``events.jsonl`` that is being written."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the file for appending; a torn last line is cut off.

        Raises:
            OSError: the file cannot be written.
        """
        self._file = growing_file(path)
        self._file.truncate(torn_line_start(self._file))
        self._encoder = msgspec.json.Encoder()
        self._conversations = ConversationBudget()
        self._clock = clock
        self._flushed_at = clock()

    def append(self, event: Event) -> None:
        """Add an event, if it is of those that are kept.

        Raises:
            OSError: the file cannot be written.
        """
        if self._file.closed or not self._conversations.keeps(event):
            return
        self._file.write(self._line(event) + b"\n")
        if self._clock() - self._flushed_at >= FLUSH_EVERY_S:
            self.flush()

    def _line(self, event: Event) -> bytes:
        line = self._encoder.encode(event)
        if b"null" not in line:
            return line
        return self._encoder.encode(_finite(msgspec.to_builtins(event)))

    def flush(self) -> None:
        """Hand everything to the operating system.

        Raises:
            OSError: the file cannot be written.
        """
        self._file.flush()
        self._flushed_at = self._clock()

    def close(self) -> None:
        """Flush and close; again does nothing.

        Raises:
            OSError: the file cannot be written.
        """
        self._file.close()


class Logged(NamedTuple):
    """An event as it stands in a log."""

    event: AnyEvent
    end: int
    """Byte after its line: where to read on."""


def read(path: Path) -> Iterator[AnyEvent]:
    """The events of a log, in order; a torn last line is left out.

    Raises:
        RunStoreError: the file is not there, or a line other than the last is no event.
    """
    return (logged.event for logged in read_from(path, 0))


def read_from(path: Path, offset: int) -> Iterator[Logged]:
    """The events of a log from a byte on at which a line begins; a torn last line is left out.

    Raises:
        RunStoreError: the file is not there, or a line other than the last is no event.
    """
    try:
        with regular_file(path) as file:
            file.seek(offset)
            while (line := file.readline(MOST_LINE)).endswith(b"\n") or len(line) == MOST_LINE:
                event = _event(path, offset, line)
                offset += len(line)
                yield Logged(event, offset)
    except OSError as error:
        raise RunStoreError(f"The events of the run cannot be read ({error}); name a run folder.") from error


class Pieces:
    """A log that is read a few events at a time, to its end or to the first line that is no event."""

    def __init__(self, path: Path, *, end: int | None = None) -> None:
        """A log of which nothing has been read yet.

        Args:
            path: of the file.
            end: byte up to which it is read, 0 if there is no file. None: to the last whole line.
        """
        self._unread: Iterator[Logged] | None = None if end == 0 else read_from(path, 0)
        self._end = math.inf if end is None else end
        self.fault = ""
        """Why it cannot be read to its end."""

    @property
    def complete(self) -> bool:
        """Whether all of it has been read that can be."""
        return self._unread is None

    def some(self, count: int) -> Iterator[Logged]:
        """At most so many events more."""
        for _ in range(count):
            try:
                logged = next(self._unread, None) if self._unread else None
            except RunStoreError as error:
                self.fault, logged = str(error), None
            if logged is None or logged.end > self._end:
                self._unread = None
                return
            yield logged


def _event(path: Path, offset: int, line: bytes) -> AnyEvent:
    try:
        return _decoder.decode(line)
    except (ValueError, RecursionError) as error:
        number = 1
        with regular_file(path) as file:
            while file.tell() < offset:
                number += file.readline(MOST_LINE).endswith(b"\n")
        why = error if line.endswith(b"\n") else f"it has over {MOST_LINE:,} bytes"
        raise RunStoreError(
            f"Line {number} of {path} is no event ({why}); "
            "the file was changed, or was written by another version of llamagym-tui."
        ) from error


def _finite(value: Any) -> Any:
    """The same with 0 for every number that JSON does not know: NaN and the infinities."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return 0.0 if isinstance(value, float) and not math.isfinite(value) else value
