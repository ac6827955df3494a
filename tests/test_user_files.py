"""Files that a crash leaves whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.user_files import replace_file, torn_line_start


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "new folder" / "notes.txt"
    for content in (b"long and old", b"new"):
        replace_file(path, content, sync=sync)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "start"),
    [(b"", 0), (b"torn", 0), (b"a\n", 2), (b"a\nb", 2), (b"a\n" + b"x" * 100_000, 2), (b"y" * 70_000 + b"\nz", 70_001)],
)
def test_a_torn_last_line_is_found(tmp_path: Path, content: bytes, start: int) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)
    with path.open("rb") as file:
        assert torn_line_start(file) == start
