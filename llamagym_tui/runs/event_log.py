"""``events.jsonl``: the events of a session, one JSON object a line, in order.

The file grows with time, not with speed, and of a long run slower and slower. Tokens are left out, because
``TurnFinished`` has the whole reply, and so is progress. Watched episodes are kept, whole, within the budget of
`CONVERSATION_EVENTS_PER_S`; of somebody else's training all are. Of policy maps one in `MAP_EVERY_S` is kept, with the
first and last one of each prompt. All other events are kept. Events that cannot be written wait until they can. A line
torn by a crash is skipped by readers and cut off by the next writer.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from llamagym_tui.errors import RunStoreError
from llamagym_tui.protocol import events
from llamagym_tui.user_files import growing_file, regular_file, torn_line_start

CONVERSATION_EVENTS_PER_S = 10.0
"""Events of watched episodes that are kept, on average over a short run."""
FULL_RATE_S = 1800.0
"""Seconds of a run after which half as many are kept, after three times as many a quarter, and so on."""
MAP_EVERY_S = 3.0
"""Seconds between two maps that are kept in a short run."""
CONVERSATION_BURST = 40.0
"""Events that may be kept at once after a quiet while."""
MOST_LINE = 16 * 2**20
"""Most bytes of an event that is read."""
FLUSH_EVERY_S = 1.0
"""Seconds after which an event stands in the file, once another one comes; also those between attempts to write."""
FLUSH_BYTES = 2**16
"""Bytes that are written at once, unless the time comes first."""
WRITTEN_AGAIN = "The event log is written again; nothing was lost."

_decoder: msgspec.json.Decoder[events.AnyEvent] = msgspec.json.Decoder(events.AnyEvent)


class ConversationBudget:
    """Chooses the watched episodes that are kept.

    An episode is kept, whole, if the budget is not overdrawn at its start. It may overdraw it; time pays the debt.
    """

    def __init__(self, *, is_endless: bool = False) -> None:
        """Choose within the budget, or keep all episodes."""
        self._most = math.inf if is_endless else CONVERSATION_BURST
        self._budget = self._most
        self._at_s = 0.0
        self._kept_episode: int | None = None

    def keeps(self, event: events.Event) -> bool:
        """True if an event belongs into the file."""
        if isinstance(event, events.TokensStreamed | events.Progressed):
            return False
        if not isinstance(event, events.WatchedEvent):
            return True
        if isinstance(event, events.EpisodeStarted):
            rate = CONVERSATION_EVENTS_PER_S / (1 + event.at_s / FULL_RATE_S)
            earned = max(0.0, event.at_s - self._at_s) * rate
            self._budget = min(self._most, self._budget + earned)
            self._at_s = event.at_s
            self._kept_episode = event.episode if self._budget > 0 else None
        is_kept = event.episode == self._kept_episode
        if is_kept:
            self._budget -= 1
        return is_kept


class MapsKept:
    """Chooses the policy maps that are kept: the last one waits until it is known that it is the last."""

    def __init__(self) -> None:
        self._kept: events.PolicyMapped | None = None
        self._waiting: events.PolicyMapped | None = None

    def keeps(self, event: events.Event) -> bool:
        """True if a map belongs into the file now."""
        assert isinstance(event, events.PolicyMapped)
        self._waiting = None
        rest_s = MAP_EVERY_S * (1 + event.at_s / FULL_RATE_S)
        before = self._kept
        if before is not None:
            is_next = before.prompt_version == event.prompt_version
            is_whole = len(before.shares) == len(event.shares)
            if is_next and is_whole and event.at_s < before.at_s + rest_s:
                self._waiting = event
                return False
        self._kept = event
        return True

    def take_last(self) -> events.PolicyMapped | None:
        """The newest map, if it is not kept yet."""
        last = self._waiting
        self._waiting = None
        return last


class EventLog:
    """An ``events.jsonl`` that is being written."""

    def __init__(
        self,
        path: Path,
        *,
        every_episode: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the file for appending; a torn last line is cut off.

        Args:
            path: the file.
            every_episode: keep every episode that is told, within no budget.
            clock: seconds.
        """
        self._path = path
        self._file = growing_file(path)
        self._file.truncate(torn_line_start(self._file))
        self._encoder = msgspec.json.Encoder()
        self._conversations = ConversationBudget(is_endless=every_episode)
        self._maps = MapsKept()
        self._clock = clock
        self._flush_at = clock() + FLUSH_EVERY_S
        self._fails = False
        self._waiting = bytearray()

    def append(self, event: events.Event) -> str:
        """Add an event, if it is kept; a sentence for people if writing fails or works again."""
        if self._file.closed:
            return ""
        if isinstance(event, events.PromptChanged | events.RunFinished | events.SessionFailed):
            self._write(self._maps.take_last())
        kept_by = self._maps if isinstance(event, events.PolicyMapped) else self._conversations
        if kept_by.keeps(event):
            self._write(event)
        is_full = len(self._waiting) > FLUSH_BYTES and not self._fails
        return self.flush() if is_full or self._clock() >= self._flush_at else ""

    def _write(self, event: events.Event | None) -> None:
        if event is not None:
            self._waiting += self._encoder.encode(event) + b"\n"

    def flush(self) -> str:
        """Hand everything to the operating system; a sentence if that fails or works again."""
        failed = self._fails
        self._flush_at = self._clock() + FLUSH_EVERY_S
        try:
            while self._waiting:
                del self._waiting[: os.write(self._file.fileno(), self._waiting)]
        except OSError as error:
            self._fails = True
            if failed:
                return ""
            return (
                f"The event log {self._path} cannot be written ({error.strerror or error}); its events wait, and "
                "the run goes on."
            )
        self._fails = False
        return WRITTEN_AGAIN if failed else ""

    def close(self) -> None:
        """Flush and close; a second call does nothing. Raises OSError if not everything could be written."""
        if self._file.closed:
            return
        self._write(self._maps.take_last())
        self.flush()
        self._file.close()
        if self._waiting:
            raise OSError(
                f"the last {len(self._waiting):,} bytes of the event log could not be written"
            )


class Logged(NamedTuple):
    """An event as it stands in a log."""

    event: events.AnyEvent
    end: int
    """Byte after its line: where to read on."""


class _Stamp(msgspec.Struct, frozen=True):
    at_s: float


def last_stamp(path: Path) -> float:
    """The `at_s` of a log's last event; 0 if there is none that can be read."""
    with contextlib.suppress(OSError), regular_file(path) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - MOST_LINE))
        for line in reversed(file.read(MOST_LINE).splitlines()):
            with contextlib.suppress(ValueError, RecursionError):
                return max(0.0, msgspec.json.decode(line, type=_Stamp).at_s)
    return 0.0


def read(path: Path) -> Iterator[events.AnyEvent]:
    """The events of a log, in order, as `read_from`."""
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
        raise RunStoreError(
            f"The events of the run cannot be read ({error}); name a run folder."
        ) from error


class Pieces:
    """A log that is read a few events at a time, to its end or to the first line that is no event."""

    def __init__(self, path: Path, *, end: int | None = None) -> None:
        """A log, to be read to its last whole line, or up to a byte (0: there is no file)."""
        self._unread: Iterator[Logged] | None = None if end == 0 else read_from(path, 0)
        self._end = math.inf if end is None else end
        self.fault = ""
        """Why it cannot be read to its end."""

    @property
    def complete(self) -> bool:
        """True once everything that can be read has been read."""
        return self._unread is None

    def some(self, count: int) -> Iterator[Logged]:
        """Up to `count` more events."""
        for _ in range(count):
            try:
                logged = next(self._unread, None) if self._unread else None
            except RunStoreError as error:
                self.fault = str(error)
                logged = None
            if logged is None or logged.end > self._end:
                self._unread = None
                return
            yield logged


def _event(path: Path, offset: int, line: bytes) -> events.AnyEvent:
    try:
        try:
            return _decoder.decode(line)
        except msgspec.ValidationError:
            if b"null" not in line:
                raise
            plain = msgspec.json.decode(line)
            for kind in get_args(events.AnyEvent):
                if kind.__name__ == plain.get("type"):
                    _put_nan(plain, kind)
            return msgspec.convert(plain, events.AnyEvent)
    except (ValueError, RecursionError) as error:
        with regular_file(path) as file:
            number = file.read(offset).count(b"\n") + 1
        why = error if line.endswith(b"\n") else f"it has over {MOST_LINE:,} bytes"
        raise RunStoreError(
            f"Line {number} of {path} is no event ({why}); "
            "the file was changed, or was written by another version of llamagym-tui."
        ) from error


def _put_nan(record: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Put NaN where a record has null for a number: JSON knows no NaN."""
    for field in msgspec.structs.fields(kind):
        value = record.get(field.name)
        if isinstance(value, dict) and isinstance(field.type, type):
            _put_nan(value, field.type)
        elif value is None and field.type is float and field.name in record:
            record[field.name] = math.nan
