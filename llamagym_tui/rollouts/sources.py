"""Files of records, each read on from where it was read to. Nothing is written.

A line that is cut off waits for its end. What cannot be read is counted by its fault, and skipped.
"""

import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, ClassVar
from urllib.parse import quote

import msgspec

from llamagym_tui.rollouts.own_runs import episode_of
from llamagym_tui.rollouts.rollout import Record
from llamagym_tui.user_files import regular_file

MOST_LINE = 64 * 2**20
"""Most bytes of a line; a longer one is no JSON."""
MOST_FILE = 2**40
"""Most bytes of a file."""
TAIL = 256
"""Bytes before the place to read on from by which a file is known again, whatever its name."""
ROWS = 128
"""Rows of a table that are read at a time."""
STEP_IN_NAME = re.compile(r"(?:^|[_-])(?:step[_-]?)?(\d+)$")
"""The step in the name of a file or of its folder, where records have none."""
RUN_LOG = "events.jsonl"
"""The event log of a run of ours."""
Placed = tuple[int, Record]
"""A place in a file, as its source counts, and the record that stands there."""


class Source(ABC):
    """A file of records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done = 0
        """Bytes that have been read."""
        self.size = 0
        """Bytes at the last look."""
        self.written = (0, 0)
        """As of `written`, at the last look."""
        self.note = ""
        """What became of the file, a sentence for people."""
        self.told: dict[int | None, Record] = {}
        """Figures of a step that the file itself has, by the names of `UpdateStats`."""
        self.faults: Counter[str] = Counter()
        """What was skipped, as a plural that follows its number: ``lines that are no JSON``."""

    @property
    def step(self) -> int | None:
        """The step in the name of the file or of its folder."""
        for name in (self.path.stem, self.path.parent.name):
            if found := STEP_IN_NAME.search(name):
                return int(found[1])
        return None

    def look(self, written: tuple[int, int]) -> None:
        """Note when the file was written, and its size."""
        self.written = written
        self.size = written[1]

    @abstractmethod
    def stands_in(self, path: Path) -> bool:
        """True if a file has what was read. Raises OSError."""

    @abstractmethod
    def read(self) -> Iterator[Placed]:
        """What has been added; `done` goes on with each record. Raises OSError or ValueError."""

    @abstractmethod
    def at(self, place: int) -> Record:
        """The record at a place. Raises as `read`."""


class Lines(Source):
    """A file with a record of JSON on each line."""

    _tail = b""
    """The last bytes that were read."""

    def stands_in(self, path: Path) -> bool:
        with _opened(path, self.done - len(self._tail)) as file:
            return file.read(len(self._tail)) == self._tail

    def read(self) -> Iterator[Placed]:
        with _opened(self.path, self.done) as file:
            while line := file.readline(MOST_LINE):
                record = None
                try:
                    record = _decoded(line) if line.strip() else None
                except (ValueError, RecursionError):
                    if not line.endswith(b"\n") and len(line) < MOST_LINE:
                        return
                    self.faults["lines that are no JSON"] += 1
                place, self.done, self._tail = self.done, file.tell(), line[-TAIL:]
                if record is not None:
                    yield place, record if isinstance(record, dict) else {}

    def at(self, place: int) -> Record:
        with _opened(self.path, place) as file:
            return _decoded(file.readline(MOST_LINE))


class RunLog(Lines):
    """The event log of a run of ours: a record is an episode."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._begun = 0
        """Where the episode under way begins."""
        self._events: list[Record] = []
        """Its events so far; none once it is told."""
        self._updates = self._kept = self._played = 0

    def read(self) -> Iterator[Placed]:
        for place, event in super().read():
            kind = event.get("type")
            # A turn may be inspected after its episode.
            if kind in ("EpisodeStarted", "UpdateFinished"):
                yield from self._episode()
            if kind == "UpdateFinished":
                self._updates = event.get("update", self._updates)
                self.told[self._updates] = event.get("stats", {})
            if kind == "EpisodesCounted":
                self._played = event.get("episodes", self._played)
            if kind == "EpisodeStarted":
                self._begun, self._events = place, [event]
            elif self._events:
                self._events.append(event)
        yield from self._episode()
        if self._kept < self._played:
            self.note = (
                f"The log of this run keeps {self._kept:,} of its {self._played:,} episodes."
            )

    def _episode(self) -> Iterator[Placed]:
        """The episode under way if it is over; it leads to the next update."""
        if record := episode_of(self._events):
            self._kept += 1
            yield self._begun, {**record, "step": self._updates + 1}
            self._events = []

    def at(self, place: int) -> Record:
        log = RunLog(self.path)
        log.done = place
        return next(log.read(), (place, {}))[1]


class Parquet(Source):
    """A table of TRL's, written at once: a record a row."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._rows = lru_cache(4)(self._read_rows)

    def stands_in(self, path: Path) -> bool:
        return self.written == written(path)

    def read(self) -> Iterator[Placed]:
        yield from enumerate(chain.from_iterable(self._batches()))
        self.done = self.size

    def at(self, place: int) -> Record:
        return self._rows(place // ROWS)[place % ROWS]

    def _read_rows(self, batch: int) -> list[Record]:
        return next(islice(self._batches(), batch, None), [])

    def _batches(self) -> Iterator[list[Record]]:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        try:
            with _opened(self.path, 0) as file, ParquetFile(file) as table:
                for batch in table.iter_batches(ROWS):
                    yield batch.to_pylist()
        except ArrowException as error:
            raise ValueError(f"{error}".rstrip(".")) from error


def written(path: Path) -> tuple[int, int]:
    """When a file was written, and its bytes. A database may have a second file for what was written last."""
    beside = _beside(path)
    found = [path.stat(), *([beside.stat()] if beside.exists() else [])]
    return max(each.st_mtime_ns for each in found), sum(each.st_size for each in found)


def _beside(path: Path) -> Path:
    """Where SQLite keeps what was written last."""
    return path.with_name(f"{path.name}-wal")


class Trackio(Source):
    """The database of a project of Trackio's, read while Trackio writes: a record a row.

    The places of its metrics are even, those of its traces odd.
    """

    COLUMNS: ClassVar = ("metrics, NULL FROM metrics", "metadata, messages FROM traces")
    """The columns that hold rollouts, and their tables."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._last_rows = [0, 0]
        self._seen: set[int] = set()
        """Tables and traces that were read."""

    def look(self, written: tuple[int, int]) -> None:
        super().look(written)
        self.done = 0  # The second file may be gone again: rows alone tell what is new.

    def stands_in(self, path: Path) -> bool:
        return path == self.path

    def read(self) -> Iterator[Placed]:
        for table in (0, 1):
            while rows := self._rows(table, "> ?", self._last_rows[table]):
                for number, *row in rows:
                    self._last_rows[table] = number
                    try:
                        record = _record(*row)
                    except ValueError:
                        self.faults["rows that are no JSON"] += 1
                        continue
                    # TRL logs its last table twice. The number that Trackio gives to its step is another one.
                    told = hash(tuple(row[1:])) if table == 0 else number
                    if record and told not in self._seen:
                        self._seen.add(told)
                        yield 2 * number + table, record
        self.done = self.size

    def at(self, place: int) -> Record:
        number, table = divmod(place, 2)
        ((_, *row),) = self._rows(table, "= ?", number)
        return _record(*row)

    def _rows(self, table: int, which: str, number: int) -> list[Any]:
        """Some rows, each with its number, its step, its run and its columns."""
        query = f"SELECT rowid, step, run_name, {self.COLUMNS[table]} WHERE rowid {which} ORDER BY rowid LIMIT {ROWS}"
        try:
            # Where nobody writes, SQLite would leave two files beside the database.
            how = "mode=ro" if _beside(self.path).exists() else "immutable=1"
            with closing(sqlite3.connect(f"file:{quote(str(self.path))}?{how}", uri=True)) as db:
                return db.execute(query, (number,)).fetchall()
        except sqlite3.Error as error:
            raise ValueError(f"{error}") from error


def _record(step: int, run: str, values: str, messages: str | None) -> Record:
    """A row of Trackio's: a trace, or the tables among metrics; empty if there are none."""
    known = {"step": step, "run": run}
    if messages is not None:
        return {**_decoded(values), **known, "messages": _decoded(messages)}
    rollouts = []
    for table in _decoded(values).values():
        for row in table.get("_value", ()) if isinstance(table, dict) else ():
            if isinstance(row, dict):
                told = {name: value for name, value in row.items() if value != "NaN"}  # a text here
                rollouts.append({**known, **told})
    return {"rollouts": rollouts} if rollouts else {}


SOURCES: dict[str, type[Source]] = {".jsonl": Lines, ".parquet": Parquet, ".db": Trackio}
"""By the end of a file's name."""


def source_of(path: Path) -> Source | None:
    """A file as a source; None if its name says that it holds no rollouts."""
    kind = RunLog if path.name == RUN_LOG else SOURCES.get(path.suffix)
    return kind(path) if kind else None


def _opened(path: Path, place: int) -> BinaryIO:
    """A file, to be read from a place on."""
    file = regular_file(path, most=MOST_FILE)
    file.seek(place)
    return file


def _decoded(text: bytes | str) -> Any:
    """JSON, with the NaN that Python's own writer makes of it."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)
