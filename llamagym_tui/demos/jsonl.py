"""Files of JSON Lines that survive crashes and full disks: a line is on disk whole, or not at all.

Writers take turns by a lock file; a write that fails is taken back; a torn last line is moved aside before the next.
Raises OSError where a file cannot be read or written, and filelock's Timeout after `LOCK_TIMEOUT_S`.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedRandom
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from llamagym_tui.user_files import (
    growing_file,
    make_folder,
    regular_file,
    replace_file,
    sync_folder,
    torn_line_start,
)

LOCK_TIMEOUT_S = 10.0
"""How long a writer waits for another one."""
MOST_LINE = 16 * 2**20
"""Bytes of a line that is read, its end included."""
BLOCK = 2**16
"""Bytes of what is longer that are looked at, or moved, at a time."""


class Line(NamedTuple):
    number: int
    """From 1."""
    content: bytes
    """Without its end; empty if it is too long."""
    torn: bool
    """Whether its end is missing; only the last line can be torn."""
    too_long: bool = False
    """Whether it has more than `MOST_LINE` bytes."""


def lines(path: Path) -> Iterator[Line]:
    """The lines of a file, in order."""
    number = 0
    with regular_file(path) as file:
        while content := file.readline(MOST_LINE):
            number += 1
            last, too_long = content, False
            while not last.endswith(b"\n") and (more := file.readline(BLOCK)):
                last, content, too_long = more, b"", True
            yield Line(number, content.rstrip(b"\r\n"), not last.endswith(b"\n"), too_long)


def append_line(path: Path, content: bytes, *, is_whole: Callable[[bytes], Any]) -> None:
    """Add one line at the end, on disk when this returns; folders are made.

    Args:
        content: without its end.
        is_whole: whether a last line without an end is complete; if not, it goes to ``<path>.torn``.
    """
    make_folder(path.parent)
    with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S):
        created = not path.exists()
        with growing_file(path, follow=True) as file:
            _mend_tail(file, path, is_whole)
            _add(file, [content + b"\n"])
        if created:
            sync_folder(path.parent)


def rewrite(
    path: Path,
    change: Callable[[list[bytes]], Sequence[bytes]],
    *,
    is_whole: Callable[[bytes], Any],
) -> None:
    """Write a file again from the lines that it has, while no other writer can add one; until it is whole the old one
    stays.

    Args:
        change: from the lines, without their ends, to those that there shall be.
        is_whole: as for `append_line`.
    Raises:
        OSError: a line is too long, too.
    """
    make_folder(path.parent)
    with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S):
        with growing_file(path, follow=True) as file:
            _mend_tail(file, path, is_whole)
        found = list(lines(path))
        if too_long := [line.number for line in found if line.too_long]:
            raise OSError(
                errno.EFBIG,
                f"line {too_long[0]} has over {MOST_LINE:,} bytes: take it out by an editor",
            )
        replace_lines(path, change([line.content for line in found]))


def replace_lines(path: Path, contents: Sequence[bytes]) -> None:
    """Replace the lines of a file; until it is whole the old one stays."""
    replace_file(path, b"".join(content + b"\n" for content in contents), sync=True)


def _add(file: BufferedRandom, blocks: Iterable[bytes]) -> None:
    """Add all of it at the end, to the disk; what cannot be written whole is taken back."""
    end = file.seek(0, os.SEEK_END)
    try:
        for block in blocks:
            view = memoryview(block)
            while view:  # the system may take a part at a time
                view = view[file.raw.write(view) or 0 :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(end)
        raise


def _mend_tail(file: BufferedRandom, path: Path, is_whole: Callable[[bytes], Any]) -> None:
    """Make the file end at a line's end."""
    start, end = torn_line_start(file), file.seek(0, os.SEEK_END)
    if start == end:
        return
    file.seek(start)
    if end - start < MOST_LINE and is_whole(file.read()):
        _add(file, [b"\n"])
        return
    file.seek(start)
    with growing_file(Path(f"{path}.torn")) as aside:
        _add(aside, (*iter(lambda: file.read(BLOCK), b""), b"\n"))
    file.truncate(start)
