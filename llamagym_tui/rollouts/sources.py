"""Files of rollouts, each read on from where it was read to. Nothing is written.

A line that is cut off waits for its end. What cannot be read is counted by its fault, and skipped.
"""

import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple
from urllib.parse import quote

import msgspec

from llamagym_tui.rollouts.formats import TextsOf, ill_typed, rollouts_of
from llamagym_tui.rollouts.own_runs import episode_of
from llamagym_tui.rollouts.rollout import Rollout
from llamagym_tui.user_files import regular_file

MOST_LINE = 64 * 2**20
"""Most bytes of a line that is read."""
MOST_FILE = 2**40
"""Most bytes of a file."""
TAIL = 256
"""Bytes before the place to read on from by which a file is known again, unless it was written anew."""
ROWS = 128
"""Rows of a table that are read at a time."""
STEP_IN_NAME = re.compile(r"(?:^|[_-])(?:step[_-]?)?(\d+)$")
"""The step in the name of a file or of its folder, where records have none."""
RUN_LOG = "events.jsonl"
"""The event log of a run of ours."""


class Read(NamedTuple):
    """Rollouts that stand at one place of a source."""

    place: int
    size: int
    rollouts: list[Rollout]


class Source(ABC):
    """A file, or a table in one."""

    def __init__(self, path: Path, texts_of: TextsOf) -> None:
        self.path = path
        self.done = 0
        """Bytes that have been read."""
        self.size = 0
        """Bytes at the last look."""
        self.faults: Counter[str] = Counter()
        """What was skipped, as a plural that follows its number: ``lines that are no JSON``."""
        self._texts_of = texts_of

    @property
    def step(self) -> int | None:
        """The step in the name of the file or of its folder."""
        for name in (self.path.stem, self.path.parent.name):
            if found := STEP_IN_NAME.search(name):
                return int(found[1])
        return None

    @abstractmethod
    def is_rewritten(self) -> bool:
        """True if what was read before is no longer what the file has."""

    @abstractmethod
    def read(self) -> Iterator[Read]:
        """What has been added, a piece at a time; `done` goes on with each. Raises OSError or ValueError."""

    @abstractmethod
    def at(self, place: int, size: int) -> list[Rollout]:
        """The rollouts at a place. Raises as `read`."""

    def look(self) -> None:
        """Note how long the file is by now. Raises OSError."""
        self.size = self.path.stat().st_size

    def _known(self, record: Any) -> list[Rollout]:
        """The rollouts of a record; what it lacks is counted."""
        found = rollouts_of(record, self._texts_of)
        if not found:
            self.faults["records without a conversation"] += 1
        for name in ill_typed(record):
            self.faults[f"values of {name} that are no number"] += 1
        return found


class Lines(Source):
    """A file with a record of JSON on each line."""

    def __init__(self, path: Path, texts_of: TextsOf) -> None:
        super().__init__(path, texts_of)
        self._tail = b""
        self.is_cut = False
        """True if the last line has no end."""

    def is_rewritten(self) -> bool:
        with regular_file(self.path, most=MOST_FILE) as file:
            file.seek(self.done - len(self._tail))
            return file.read(len(self._tail)) != self._tail

    def read(self) -> Iterator[Read]:
        for place, record in self._records():
            if rollouts := self._known(record):
                yield Read(place, self.done - place, rollouts)

    def at(self, place: int, size: int) -> list[Rollout]:
        with regular_file(self.path, most=MOST_FILE) as file:
            file.seek(place)
            return rollouts_of(_decoded(file.read(size)), self._texts_of)

    def _records(self) -> Iterator[tuple[int, Any]]:
        """The records that have been added, each with the byte at which its line begins."""
        with regular_file(self.path, most=MOST_FILE) as file:
            file.seek(self.done)
            self.is_cut = False
            while line := file.readline(MOST_LINE):
                record = self._record(line, file)
                if self.is_cut:
                    return
                place, self.done, self._tail = self.done, file.tell(), line[-TAIL:]
                if record is not None:
                    yield place, record

    def _record(self, line: bytes, file: BinaryIO) -> Any:
        """The record on a line; None if it is none. The rest of a line that is too long is passed over."""
        has_end = line.endswith(b"\n")
        if len(line) == MOST_LINE and not has_end:
            while line and not line.endswith(b"\n"):
                line = file.readline(MOST_LINE)
            self.faults[f"lines of more than {MOST_LINE:,} bytes"] += 1
            return None
        if not line.strip():
            return None
        try:
            return _decoded(line)
        except (ValueError, RecursionError):
            if has_end:
                self.faults["lines that are no JSON"] += 1
            self.is_cut = not has_end
            return None


class RunLog(Lines):
    """The event log of a run of ours: a rollout is an episode."""

    def __init__(self, path: Path, texts_of: TextsOf) -> None:
        super().__init__(path, texts_of)
        self._begun: int | None = None
        """Where the episode under way begins."""
        self._events: list[Any] = []
        """Its events so far."""
        self._is_over = False
        """True once it has ended."""
        self._updates = 0

    @property
    def step(self) -> int:
        """The update that the episodes under way lead to."""
        return self._updates + 1

    def read(self) -> Iterator[Read]:
        for place, event in self._records():
            kind = event.get("type") if isinstance(event, dict) else None
            # A turn may be inspected after its episode.
            if self._is_over and kind != "TurnInspected":
                yield from self._episode(place)
            if kind == "UpdateFinished":
                self._updates = event.get("update", self._updates)
            if kind == "EpisodeStarted":
                self._begun, self._events = place, []
            if kind is not None and self._begun is not None:
                self._events.append(event)
                self._is_over |= kind == "EpisodeFinished"
        if self._is_over:
            yield from self._episode(self.done)

    def _episode(self, end: int) -> Iterator[Read]:
        """The episode that is over, up to the byte at which something else begins."""
        begun, self._begun, self._is_over = self._begun, None, False
        rollout = episode_of(self._events)
        if rollout is not None and begun is not None:
            yield Read(begun, end - begun, [rollout])

    def at(self, place: int, size: int) -> list[Rollout]:
        events = []
        with regular_file(self.path, most=MOST_FILE) as file:
            file.seek(place)
            for line in file:
                event = _decoded(line)
                if file.tell() > place + size and event.get("type") != "TurnInspected":
                    break
                events.append(event)
        rollout = episode_of(events)
        return [rollout] if rollout else []


class Parquet(Source):
    """A table of TRL's, written at once: a rollout a row."""

    def __init__(self, path: Path, texts_of: TextsOf) -> None:
        super().__init__(path, texts_of)
        self._written_at = 0.0
        self._rows = lru_cache(4)(self._read_rows)

    def is_rewritten(self) -> bool:
        return self.done > 0 and self._written_at != self.path.stat().st_mtime

    def read(self) -> Iterator[Read]:
        self._written_at = self.path.stat().st_mtime
        for at, batch in enumerate(self._batches()):
            for row, record in enumerate(batch):
                if rollouts := self._known(record):
                    yield Read(at * ROWS + row, 0, rollouts)
        self.done = self.size

    def at(self, place: int, size: int) -> list[Rollout]:
        return rollouts_of(self._rows(place // ROWS)[place % ROWS], self._texts_of)

    def _read_rows(self, batch: int) -> list[Any]:
        return next(islice(self._batches(), batch, None))

    def _batches(self) -> Iterator[list[Any]]:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        try:
            with regular_file(self.path, most=MOST_FILE) as file, ParquetFile(file) as table:
                for batch in table.iter_batches(ROWS):
                    yield batch.to_pylist()
        except ArrowException as error:
            raise ValueError(f"{error}") from error


class TrackioTable(Source):
    """One of the tables of a project of Trackio's, read while Trackio writes."""

    COLUMNS: ClassVar = {"metrics": "metrics", "traces": "messages, metadata"}
    """The tables, and their columns that hold rollouts."""

    def __init__(self, path: Path, texts_of: TextsOf, table: str) -> None:
        super().__init__(path, texts_of)
        self._table = table
        self._last_row = 0

    def is_rewritten(self) -> bool:
        return False

    def read(self) -> Iterator[Read]:
        while rows := self._rows("> ?", self._last_row):
            for row in rows:
                self._last_row = row[0]
                if rollouts := self._of_row(row):
                    yield Read(row[0], 0, rollouts)
        self.done = self.size

    def at(self, place: int, size: int) -> list[Rollout]:
        return [found for row in self._rows("= ?", place) for found in self._of_row(row)]

    def _rows(self, which: str, row: int) -> list[Any]:
        """Some rows, each with its number, its step, its run and its columns."""
        columns = f"rowid, step, run_name, {self.COLUMNS[self._table]}"
        query = (
            f"SELECT {columns} FROM {self._table} WHERE rowid {which} ORDER BY rowid LIMIT {ROWS}"
        )
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True)) as db:
                return db.execute(query, (row,)).fetchall()
        except sqlite3.Error as error:
            raise ValueError(f"{error}") from error

    def _of_row(self, row: Sequence[Any]) -> list[Rollout]:
        _, step, run, first, *rest = row
        shared = {"step": step, "run": run}
        if self._table == "traces":
            return self._known({**_decoded(rest[0]), **shared, "messages": _decoded(first)})
        tables = [each for each in _decoded(first).values() if isinstance(each, dict)]
        records = [
            row for each in tables for row in each.get("_value", ()) if isinstance(row, dict)
        ]
        return [found for each in records for found in self._known({**shared, **each})]


def sources_of(path: Path, texts_of: TextsOf) -> list[Source]:
    """What a file holds; nothing if its name says that it holds no rollouts."""
    match path.suffix:
        case ".jsonl":
            return [(RunLog if path.name == RUN_LOG else Lines)(path, texts_of)]
        case ".parquet":
            return [Parquet(path, texts_of)]
        case ".db":
            return [TrackioTable(path, texts_of, table) for table in TrackioTable.COLUMNS]
    return []


def _decoded(text: bytes | str) -> Any:
    """JSON, with the NaN that Python's own writer makes of it."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)
