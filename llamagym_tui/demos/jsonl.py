"""Files of JSON Lines that survive crashes and full disks: a line is either whole on the disk, or not there at all.

What other programs make of such files is read, too: blank lines, byte order marks, a last line without an end, a JSON
array of objects in place of lines.

Writers take turns by a lock file. A write that fails is undone. A last line that a crash left incomplete is moved aside
before the next one is written. OSError is raised if a file cannot be read or written, and filelock's Timeout after
`LOCK_TIMEOUT_S`.
"""

import errno
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedRandom
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from filelock import FileLock

from llamagym_tui.user_files import (
    MOST_WHOLE,
    growing_file,
    make_folder,
    regular_file,
    replace_file,
    sync_folder,
    torn_line_start,
)

LOCK_TIMEOUT_S = 10.0
"""Seconds that a writer waits for another one."""
MOST_LINE = 16 * 2**20
"""Most bytes of a line that is read, its end included."""
BLOCK = 2**16
"""Bytes of a longer line that are skipped or moved at a time."""


class Line(NamedTuple):
    """A line of a file, or an element of a JSON array."""

    number: int
    """Its number, from 1."""
    content: bytes
    """The line without its end; empty if it is too long."""
    torn: bool
    """Whether its end is missing; this can only be so in the last line."""
    too_long: bool = False
    """Whether it has more than `MOST_LINE` bytes."""


def lines(path: Path) -> Iterator[Line]:
    """The lines of a file that are not blank, in order, without byte order marks; or the elements of its array."""
    array = _array(path)
    if array is not None:
        for number, content in enumerate(array, start=1):
            too_long = len(content) >= MOST_LINE
            yield Line(number, b"" if too_long else content, False, too_long)
        return
    number = 0
    with regular_file(path) as file:
        while content := file.readline(MOST_LINE):
            number += 1
            has_end = content.endswith(b"\n")
            too_long = False
            while not has_end and (more := file.readline(BLOCK)):
                has_end = more.endswith(b"\n")
                too_long = True
            if too_long:
                content = b""
            elif not content.removeprefix(BOM_UTF8).strip():
                continue
            content = content.removeprefix(BOM_UTF8).rstrip(b"\r\n")
            yield Line(number, content, not has_end, too_long)


def _array(path: Path) -> list[bytes] | None:
    """The objects of a file that is a JSON array of them, each as a line; None: it is something else."""
    with regular_file(path) as file:
        content = file.read(BLOCK).removeprefix(BOM_UTF8)
        if not re.match(rb"\s*\[\s*\{", content):
            return None
        content += file.read(MOST_WHOLE)
        if file.read(1):
            return None
    try:
        parts = msgspec.json.decode(content, type=list[msgspec.Raw])
        return [msgspec.json.format(part, indent=-1) for part in parts]
    except (ValueError, RecursionError):
        return None


def append_line(path: Path, content: bytes, *, is_whole: Callable[[bytes], Any]) -> None:
    """Add a line at the end, which is on the disk when this returns; folders are made.

    Args:
        content: the line without its end.
        is_whole: whether a last line without an end is complete; if it is not, it is moved to ``<path>.torn``.
    """
    make_folder(path.parent)
    with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S):
        created = not path.exists()
        if not created and (array := _array(path)) is not None:
            replace_lines(path, array)
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
    """Write a file again with changed lines, while no other writer can add one; the old file stays until the new one is
    whole.

    Args:
        change: a function from the file's lines, without their ends, to those that it is to have.
        is_whole: as for `append_line`.
    Raises:
        OSError: also if a line is too long.
    """
    make_folder(path.parent)
    with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S):
        if not path.exists() or _array(path) is None:
            with growing_file(path, follow=True) as file:
                _mend_tail(file, path, is_whole)
        found = list(lines(path))
        for line in found:
            if line.too_long:
                raise OSError(
                    errno.EFBIG,
                    f"line {line.number} has over {MOST_LINE:,} bytes: remove it with an editor",
                )
        replace_lines(path, change([line.content for line in found]))


def replace_lines(path: Path, contents: Sequence[bytes]) -> None:
    """Replace the lines of a file; the old file stays until the new one is whole."""
    replace_file(path, b"".join(content + b"\n" for content in contents), sync=True)


def _add(file: BufferedRandom, blocks: Iterable[bytes]) -> None:
    """Write blocks at the end, down to the disk; if not all of them can be written, none is."""
    end = file.seek(0, os.SEEK_END)
    try:
        for block in blocks:
            unwritten = memoryview(block)
            while unwritten:  # the system may write only a part of it
                written = file.raw.write(unwritten) or 0
                unwritten = unwritten[written:]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(end)
        raise


def _mend_tail(file: BufferedRandom, path: Path, is_whole: Callable[[bytes], Any]) -> None:
    """Make the file end with a line's end: complete a last line that only lacks it, or move that line aside."""
    start = torn_line_start(file)
    end = file.seek(0, os.SEEK_END)
    if start == end:
        return
    file.seek(start)
    if end - start < MOST_LINE:
        content = file.read().removeprefix(BOM_UTF8)
        if not content.strip() or is_whole(content):
            _add(file, [b"\n"])
            return
    file.seek(start)
    with growing_file(Path(f"{path}.torn")) as aside:
        blocks = []
        while block := file.read(BLOCK):
            blocks.append(block)
        blocks.append(b"\n")
        _add(aside, blocks)
    file.truncate(start)
