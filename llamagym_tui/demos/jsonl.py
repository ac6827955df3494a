"""Files of JSON Lines that survive crashes and full disks: a line is on disk whole, or not at all.

Writers take turns by a lock file; a write that fails is taken back; a torn last line, which a crash leaves behind, is
moved aside before the next one is added. Knows nothing of what the lines mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from llamagym_tui.user_files import replace_file, torn_line_start

LOCK_TIMEOUT_S = 10.0
"""How long a writer waits for another one."""


class Line(NamedTuple):
    """One line of a file."""

    number: int
    """From 1."""
    content: bytes
    """Without its end."""
    torn: bool
    """Whether its end is missing; only the last line can be torn."""


def lines(path: Path) -> Iterator[Line]:
    """The lines of a file, in order.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            yield Line(number, line.rstrip(b"\r\n"), not line.endswith(b"\n"))


def append_line(path: Path, content: bytes, *, is_whole: Callable[[bytes], bool]) -> None:
    """Add one line at the end, on disk when this returns; folders are made.

    Args:
        path: the file; made if absent.
        content: without its end.
        is_whole: whether a last line without an end is complete; if not, it goes to ``<path>.torn``.
    Raises:
        OSError: the line cannot be written; the file then has what it had.
        filelock.Timeout: another process held the file for `LOCK_TIMEOUT_S`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S):
        created = not path.exists()
        with open(path, "ab+", buffering=0) as file:
            end = _mend_tail(file, path, is_whole)
            try:
                _write(file, content + b"\n")
            except OSError:
                file.truncate(end)
                raise
        if created:
            _sync_folder(path.parent)


def rewrite(path: Path, change: Callable[[list[bytes]], Sequence[bytes]], *, is_whole: Callable[[bytes], bool]) -> None:
    """Write a file again from the lines that it has, while no other writer can add one; until it is whole the old one
    stays.

    Args:
        path: the file; an absent one has no lines.
        change: from the lines, without their ends, to those that there shall be.
        is_whole: as for `append_line`.
    Raises:
        OSError: it cannot be read or written; the file then has what it had.
        filelock.Timeout: another process held the file for `LOCK_TIMEOUT_S`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S):
        with open(path, "ab+", buffering=0) as file:
            _mend_tail(file, path, is_whole)
        replace_lines(path, change([line.content for line in lines(path)]))


def replace_lines(path: Path, contents: Sequence[bytes]) -> None:
    """Replace the lines of a file; until it is whole the old one stays.

    Raises:
        OSError: it cannot be written; the old file is then as it was.
    """
    replace_file(path, b"".join(content + b"\n" for content in contents), sync=True)


def _write(file: FileIO, data: bytes) -> None:
    """All of it, to the disk; a raw file may take a part at a time."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]
    os.fsync(file.fileno())


def _mend_tail(file: FileIO, path: Path, is_whole: Callable[[bytes], bool]) -> int:
    """Make the file end at a line's end; returns its length in bytes."""
    with path.open("rb") as whole:  # buffered: an unbuffered file may give less than is read of it
        start = torn_line_start(whole)
    end = file.seek(0, os.SEEK_END)
    if start == end:
        return end
    file.seek(start)
    tail = file.readall()
    if is_whole(tail):
        _write(file, b"\n")
        return end + 1
    with open(f"{path}.torn", "ab", buffering=0) as aside:
        _write(aside, tail + b"\n")
    file.truncate(start)
    return start


def _sync_folder(folder: Path) -> None:
    """Put a new file's name on disk too, where the system knows how."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
