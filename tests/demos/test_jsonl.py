"""Lines on a disk that fills up, writes a part at a time, or fails: whole ones or none."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.demos import jsonl
from llamagym_tui.demos.jsonl import append_line, rewrite


class Disk:
    """Takes `part` bytes of each write, and `room` bytes in all."""

    def __init__(self, part: int, room: int) -> None:
        self.part, self.room = part, room
        self.synced: list[bytes] = []

    def open(self, path: Path, **_: Any) -> io.BufferedRandom:
        disk = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                taken = bytes(data[: min(disk.part, disk.room)])
                if not taken:
                    raise OSError(errno.ENOSPC, "No space left on device")
                disk.room -= len(taken)
                return super().write(taken)

        return io.BufferedRandom(Raw(path, "ab+"))

    def sync(self, descriptor: int) -> None:
        self.synced.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"first\n")
    return path


def on(monkeypatch: pytest.MonkeyPatch, disk: Disk) -> Disk:
    monkeypatch.setattr(jsonl, "growing_file", disk.open)
    monkeypatch.setattr(os, "fsync", disk.sync)
    return disk


@pytest.mark.parametrize("part", [1, 2, 3, 100])
def test_a_line_is_whole_and_on_the_disk_however_small_the_parts_are_in_which_it_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    disk = on(monkeypatch, Disk(part, room=100))
    append_line(path, b"second", is_whole=bool)
    assert path.read_bytes() == b"first\nsecond\n"
    assert disk.synced == [b"first\nsecond\n"]


@pytest.mark.parametrize("room", range(7))
def test_a_line_for_which_there_is_no_room_is_taken_back_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    on(monkeypatch, Disk(part=4, room=room))
    with pytest.raises(OSError, match="No space left"):
        append_line(path, b"second", is_whole=bool)
    assert path.read_bytes() == b"first\n"


def test_a_line_that_does_not_reach_the_disk_is_taken_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        append_line(path, b"second", is_whole=bool)
    assert path.read_bytes() == b"first\n"


@pytest.mark.parametrize("room", range(7))
def test_a_torn_line_stays_where_it_is_until_it_is_whole_aside(
    path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path.write_bytes(b"first\ntorn!!")
    on(monkeypatch, Disk(part=2, room=room))
    with pytest.raises(OSError, match="No space left"):
        append_line(path, b"second", is_whole=lambda tail: False)
    assert path.read_bytes() == b"first\ntorn!!"
    assert Path(f"{path}.torn").read_bytes() == b""


@pytest.mark.parametrize(
    "length", [1, jsonl.BLOCK - 1, jsonl.BLOCK, jsonl.BLOCK + 1, jsonl.MOST_LINE + 1]
)
def test_a_torn_line_is_moved_aside_to_the_last_byte(path: Path, length: int) -> None:
    torn = (b"0123456789" * (length // 10 + 1))[:length]
    path.write_bytes(b"first\n" + torn)
    append_line(path, b"second", is_whole=lambda tail: False)
    assert path.read_bytes() == b"first\nsecond\n"
    assert Path(f"{path}.torn").read_bytes() == torn + b"\n"


def test_a_last_line_that_only_lacks_its_end_gets_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"first\nlast")
    seen: list[bytes] = []
    append_line(path, b"next", is_whole=lambda tail: not seen.append(tail))
    assert (seen, path.read_bytes()) == ([b"last"], b"first\nlast\nnext\n")


def test_lines_longer_than_the_bound_are_counted_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MOST_LINE", 4)
    monkeypatch.setattr(jsonl, "BLOCK", 3)
    path = tmp_path / "lines"
    path.write_bytes(b"abc\nabcd\n\nabcdefghijk\nabc\nabcdefg")
    assert [
        (line.number, line.content, line.torn, line.too_long) for line in jsonl.lines(path)
    ] == [
        (1, b"abc", False, False),
        (2, b"", False, True),
        (4, b"", False, True),
        (5, b"abc", False, False),
        (6, b"", True, True),
    ]


def test_the_folder_of_a_new_file_is_on_the_disk_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(jsonl, "sync_folder", synced.append)
    append_line(path, b"second", is_whole=bool)
    assert synced == []
    append_line(path.parent / "new" / "lines.jsonl", b"first", is_whole=bool)
    assert synced == [path.parent / "new"]


def test_a_line_is_added_to_the_file_that_a_link_names(path: Path) -> None:
    link = path.parent / "link.jsonl"
    link.symlink_to(path)
    append_line(link, b"second", is_whole=bool)
    assert path.read_bytes() == b"first\nsecond\n"
    assert link.is_symlink()


def test_lines_are_written_to_a_folder_that_is_not_there_yet_and_that_is_its_owners_only(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "lines.jsonl"
    rewrite(path, lambda lines: [*lines, b"first"], is_whole=bool)
    assert path.read_bytes() == b"first\n"
    assert path.parent.stat().st_mode & 0o777 == 0o700
