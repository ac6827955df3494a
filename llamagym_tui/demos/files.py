"""Files of demonstrations, in JSON Lines: append, write, read and remove.

A line is either whole on the disk or not there: a write that fails is undone, and a last line that a crash left
incomplete is moved to ``<path>.torn`` before the next one is written. Writers take turns by a lock file. Blank lines
and byte order marks of other programs are skipped. A failure raises DemoFileError.
"""

import contextlib
import os
import threading
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedRandom
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from llamagym_tui.demos.demonstration import MOST_LINE, SCHEMA, Demonstration, decode, encode
from llamagym_tui.errors import DemoFileError
from llamagym_tui.user_files import (
    data_dir,
    growing_file,
    make_folder,
    regular_file,
    replace_file,
    sync_folder,
    torn_line_start,
)

LOCK_TIMEOUT_S = 10.0
"""Seconds that a writer waits for another one."""


class Line(NamedTuple):
    """A line of a file."""

    number: int
    """Counted from 1."""
    content: bytes
    """The line without its end; empty if it is too long."""
    demo: Demonstration | None
    fault: str = ""
    """The reason why it cannot be read, for people; empty if it can."""
    is_torn: bool = False
    """True if it is incomplete, which can only be so in the last line."""


def demos_dir() -> Path:
    """The folder for a person's demonstrations, which may not exist yet."""
    return data_dir() / "demos"


def default_path(agent_name: str) -> Path:
    """The file to which a person's episodes with an agent are appended."""
    return demos_dir() / f"{agent_name}.jsonl"


@contextlib.contextmanager
def file_errors(failed: str, advice: str = "choose another place") -> Iterator[None]:
    """Turn errors of files and locks into DemoFileError: it says what failed, why, and what to do."""
    try:
        yield
    except Timeout as error:
        raise DemoFileError(
            f"{failed}: another program holds the file; try again when that one is done."
        ) from error
    except OSError as error:
        raise DemoFileError(f"{failed} ({error.strerror or error}); {advice}.") from error


def append(path: Path, demo: Demonstration) -> None:
    """Add a demonstration as the last line; it is on the disk when this returns."""
    line = encode(demo)
    with file_errors(f"The episode was not saved to {path}", "make room, or check its rights"):
        make_folder(path.parent)
        with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S):
            created = not path.exists()
            with growing_file(path, follow=True) as file:
                _mend_end(file, path)
                add_to_end(file, line + b"\n")
            if created:
                sync_folder(path.parent)


def remove(path: Path, content: bytes) -> None:
    """Remove the first line with these bytes; lines that other programs add stay."""
    with (
        file_errors(f"{path} was not changed", "make room, or check its rights"),
        FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S),
    ):
        with growing_file(path, follow=True) as file:
            _mend_end(file, path)
        found = list(_lines(path))
        for line in found:
            if not line.content:
                raise DemoFileError(f"{path}, line {line.number}: {line.fault}")
        left = [line.content for line in found]
        if content not in left:
            raise DemoFileError(
                f"The episode is no longer in {path}: another program changed it; open it again."
            )
        left.remove(content)
        _replace(path, left)


def write(path: Path, demonstrations: Iterable[Demonstration]) -> None:
    """Replace a file as a whole."""
    lines = [encode(demo) for demo in demonstrations]
    with file_errors(f"{path} cannot be written"):
        _replace(path, lines)


def read(path: Path) -> list[Demonstration]:
    """All demonstrations of a file; an incomplete last line is skipped, any other faulty line is an error."""
    demos = []
    for line in lines_of(path):
        if line.demo is not None:
            demos.append(line.demo)
        elif not line.is_torn:
            raise DemoFileError(
                f"{path}, line {line.number}: {line.fault} See `llamagym-tui demos check {path}`."
            )
    return demos


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a file that are not blank, in order, also those with a fault."""
    with file_errors(f"{path} cannot be read", "check the path and its rights"):
        yield from _lines(path)


class DemoWriter:
    """Appends a person's episodes to a file, in order; those that could not be written are kept and tried again.

    `add` returns at once. `save` may take a moment and can be called in any thread.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.saved = 0
        """Episodes on the disk."""
        self.fault = ""
        """Reason that episodes have to wait, for people; empty if none does."""
        self._waiting: list[Demonstration] = []
        self._writing = threading.Lock()

    @property
    def waiting(self) -> int:
        """Episodes that are not on the disk yet."""
        return len(self._waiting)

    def add(self, demo: Demonstration) -> None:
        """Let an episode wait for the next `save`."""
        self._waiting.append(demo)

    def save(self) -> None:
        """Write the waiting episodes; sets `saved`, `waiting` and `fault`."""
        with self._writing:
            self.fault = ""
            while self._waiting:
                try:
                    append(self.path, self._waiting[0])
                except DemoFileError as error:
                    self.fault = str(error)
                    return
                self._waiting.pop(0)
                self.saved += 1


def _lines(path: Path) -> Iterator[Line]:
    number = 0
    with regular_file(path) as file:
        while content := file.readline(MOST_LINE):
            number += 1
            end = content
            while not end.endswith(b"\n") and (more := file.readline(MOST_LINE)):
                end = more
            if end is not content:
                too_long = f"The line has over {MOST_LINE:,} bytes; remove it with an editor."
                yield Line(number, b"", None, too_long)
            elif content.strip():
                line = content.removeprefix(BOM_UTF8).rstrip(b"\r\n")
                yield _read_line(number, line, is_torn=not content.endswith(b"\n"))


def _read_line(number: int, content: bytes, *, is_torn: bool) -> Line:
    try:
        demo = decode(content)
    except ValueError as error:
        fault = f"This is no demonstration: {error}."
        if is_torn:
            fault = "The line is incomplete; a crash may have interrupted its writing."
        return Line(number, content, None, fault, is_torn)
    if demo.schema != SCHEMA:
        fault = f"The schema is {demo.schema}, and this program knows {SCHEMA}; update it."
        return Line(number, content, None, fault)
    return Line(number, content, demo)


def _replace(path: Path, lines: Sequence[bytes]) -> None:
    """Replace the lines of a file; the old file stays until the new one is whole."""
    replace_file(path, b"".join(line + b"\n" for line in lines), sync=True)


def _mend_end(file: BufferedRandom, path: Path) -> None:
    """Complete a last line that only lacks its end, or move it to ``<path>.torn``."""
    start = torn_line_start(file)
    file.seek(start)
    content = file.read()
    if not content:
        return
    if not content.strip() or _read_line(0, content.removeprefix(BOM_UTF8), is_torn=True).demo:
        add_to_end(file, b"\n")
        return
    with growing_file(Path(f"{path}.torn")) as aside:
        add_to_end(aside, content + b"\n")
    file.truncate(start)


def add_to_end(file: BufferedRandom, content: bytes) -> None:
    """Write at the end, down to the disk; if not all can be written, nothing is."""
    end = file.seek(0, os.SEEK_END)
    unwritten = memoryview(content)
    try:
        while unwritten:  # the system may write only a part of it
            written = file.raw.write(unwritten) or 0
            unwritten = unwritten[written:]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(end)
        raise
