"""The trainer's pipes: descriptors that library prints cannot reach, and events from a thread of their own.

Prints go to a log, never to the wire, stdout or the screen. A user interface that reads slowly never stops training:
while more than `MOST_WAITING` bytes wait, the conversation is left out, and an event in its place has the number. All
other events arrive, in order and however late; those that wait long are kept compressed.
"""

import io
import logging
import os
import sys
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

from llamagym_tui.protocol.events import (
    EpisodeStarted,
    Event,
    EventsLeftOut,
    ObservationShown,
    WatchedEvent,
)
from llamagym_tui.protocol.wire import encoded, framed
from llamagym_tui.user_files import growing_file

STDIN = 0
"""The descriptor of standard input."""
STDOUT = 1
"""The descriptor of standard output."""
STDERR = 2
"""The descriptor of standard error."""


class Wire(NamedTuple):
    """The pipes of a trainer process, unbuffered."""

    commands: BinaryIO
    events: BinaryIO


def take_over_wire(log_path: Path) -> Wire:
    """The original stdin and stdout as the wire; from now on 0 reads nothing, and 1 and 2 write to the log."""
    wire = Wire(io.FileIO(os.dup(STDIN), "rb"), io.FileIO(os.dup(STDOUT), "wb"))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, STDIN)
    try:
        with growing_file(log_path) as log:
            printed = os.dup(log.fileno())
    except OSError:  # whoever writes into the run folder next reports it
        printed = os.dup(nothing)
    os.dup2(printed, STDOUT)
    os.dup2(printed, STDERR)
    os.close(nothing)
    os.close(printed)
    sys.stdout = prints_to(STDOUT)
    sys.stderr = prints_to(STDERR)
    return wire


class _Unfailing(io.FileIO):
    """A file that drops what it cannot write: a print on a full disk ends no run."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content) or 0
        except OSError:
            return memoryview(content).nbytes


def prints_to(descriptor: int) -> TextIO:
    """A stream for prints, which never fails; it leaves the descriptor open.

    It has no buffer of bytes: Python aborts a process that ends while a daemon thread holds the lock of one.
    """
    raw = _Unfailing(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


@contextmanager
def diverted(log: BinaryIO, *, stderr: bool) -> Iterator[TextIO]:
    """Redirect stdout to a log for a while, and stderr too if requested; yields the real stderr."""
    _flush()
    kept = {STDOUT: os.dup(STDOUT), STDERR: os.dup(STDERR)}
    terminal = os.fdopen(os.dup(STDERR), "w", encoding="utf-8", errors="replace", buffering=1)
    errors = prints_to(STDERR) if stderr else sys.stderr
    try:
        os.dup2(log.fileno(), STDOUT)
        if stderr:
            os.dup2(log.fileno(), STDERR)
        with prints_to(STDOUT) as prints, redirect_stdout(prints), redirect_stderr(errors):
            yield terminal
    finally:
        errors.flush()
        _flush()  # before the way back: what a library left in a buffer belongs to the log
        for descriptor, original in kept.items():
            os.dup2(original, descriptor)
            os.close(original)
        terminal.close()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


MOST_WAITING = 1024 * 1024
"""Bytes that wait before the conversation is left out, and that are compressed together."""
PIECE = 16 * 1024
"""Bytes that are written at once."""
PATIENCE_S = 5.0
"""Seconds that the end of a session waits for somebody who reads nothing."""
log = logging.getLogger(__name__)


class EventPipe:
    def __init__(self, stream: BinaryIO, *, on_gone: Callable[[], None]) -> None:
        """A pipe to an unbuffered stream; `on_gone` is called once, from the thread, when nobody can read any more."""
        self._stream = stream
        self._on_gone = on_gone
        self._blocks: deque[bytes] = deque()
        self._tail = bytearray()
        """Events after the compressed blocks."""
        self._waiting = 0
        """Bytes that were not taken to be written."""
        self._taken = 0
        """Bytes that were written."""
        self._changed = threading.Condition()
        self._fault: OSError | None = None
        self._closed = False
        self._gap = Gap()
        self._thread = threading.Thread(target=self._write, name="events", daemon=True)
        self._thread.start()

    def send(self, event: Event) -> None:
        """Queue an event, or leave it out. Raises OSError: nobody can read any more."""
        with self._changed:
            if self._fault is not None:
                raise self._fault
            for each in self._gap.around(event, self._waiting):
                frame = framed(encoded(each))
                self._tail += frame
                self._waiting += len(frame)
            if len(self._tail) > MOST_WAITING:
                self._blocks.append(zlib.compress(self._tail, level=1))
                self._tail = bytearray()
            self._changed.notify()

    def close(self) -> None:
        """Wait until all has been read, or nothing was for `PATIENCE_S`."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        taken = -1
        while self._thread.is_alive() and taken < self._taken:
            taken = self._taken
            self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            log.error("nobody reads: %d bytes of events were not sent", self._waiting)

    def _write(self) -> None:
        try:
            while waiting := self._next():
                while waiting:  # a raw stream may take less than it is given
                    written = self._stream.write(waiting[:PIECE])
                    waiting = waiting[written:]
                    self._taken += written
        except OSError as error:
            self._fault = error
            self._on_gone()

    def _next(self) -> memoryview:
        """The oldest bytes, once there are any; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._blocks:
                found: bytes | bytearray = zlib.decompress(self._blocks.popleft())
            else:
                found = self._tail
                self._tail = bytearray()
            self._waiting -= len(found)
            return memoryview(found)


class Gap:
    """The part of the conversation that is left out."""

    def __init__(self) -> None:
        self._is_open = False
        self._count = 0
        self._started: EpisodeStarted | None = None
        """The episode that began last among what was left out."""

    def around(self, event: Event, waiting: int) -> Iterator[Event]:
        """The events to send when one comes and this many bytes wait: itself or nothing, after a gap its mark first."""
        if not isinstance(event, WatchedEvent):
            yield event
            return
        self._is_open = waiting > MOST_WAITING or (self._is_open and waiting > 0)
        may_end = isinstance(event, EpisodeStarted | ObservationShown)
        if self._is_open or (self._count and not may_end):
            self._count += 1
            if isinstance(event, EpisodeStarted):
                self._started = event
            return
        if self._count:
            yield from self._ended(event)
        yield event

    def _ended(self, event: WatchedEvent) -> Iterator[Event]:
        """The mark of a gap, and the beginning of the episode that goes on after it."""
        count = self._count
        begun = self._started
        self._count = 0
        self._started = None
        if begun is not None and (begun.episode != event.episode or begun == event):
            begun = None
        if begun is not None:
            count -= 1
        if count:
            yield EventsLeftOut(at_s=event.at_s, count=count)
        if begun is not None:
            yield begun
