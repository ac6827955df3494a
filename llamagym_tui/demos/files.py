"""Files of demonstrations, in JSON Lines: append, write, read, check and remove.

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

from filelock import FileLock, Timeout

from llamagym_tui.demos.demonstration import MOST_LINE, Demonstration, decode, encode, readable
from llamagym_tui.demos.faults import Fault, Line, faults
from llamagym_tui.errors import DemoFileError
from llamagym_tui.game.agent_base import AgentBase
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
                _add(file, line + b"\n")
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
        if any(line.too_long for line in found):
            raise DemoFileError(
                f"{path} has a line of over {MOST_LINE:,} bytes: remove it with an editor."
            )
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
        try:
            demos.append(decode(line.content))
        except ValueError as error:
            if line.torn:
                break
            why = f"it has over {MOST_LINE:,} bytes" if line.too_long else error
            raise DemoFileError(
                f"{path}, line {line.number}: {why}; see `llamagym-tui demos check {path}`."
            ) from error
    return demos


def check(path: Path, agent: AgentBase | None = None) -> list[Fault]:
    """The faults of a file, line by line; empty if it can be trained on."""
    return faults(lines_of(path), agent)


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
            has_end = content.endswith(b"\n")
            too_long = False
            while not has_end and (more := file.readline(MOST_LINE)):
                has_end = more.endswith(b"\n")
                too_long = True
            content = content.removeprefix(BOM_UTF8).rstrip(b"\r\n")
            if too_long:
                yield Line(number, b"", not has_end, True)
            elif content.strip():
                yield Line(number, content, not has_end)


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
    if not content.strip() or readable(content.removeprefix(BOM_UTF8)):
        _add(file, b"\n")
        return
    with growing_file(Path(f"{path}.torn")) as aside:
        _add(aside, content + b"\n")
    file.truncate(start)


def _add(file: BufferedRandom, content: bytes) -> None:
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
