"""Files that a crash leaves whole, and what stands in a file's place."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from llamagym_tui import user_files
from llamagym_tui.errors import UsageError
from llamagym_tui.runs.run_store import CONFIG_FILE, EVENTS_FILE, find_run
from llamagym_tui.setup import trust
from llamagym_tui.setup.run_config import checked_model
from llamagym_tui.user_files import (
    file_content,
    growing_file,
    replace_file,
    torn_line_start,
)


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "new folder" / "notes.txt"
    for content in (b"long and old", b"new"):
        replace_file(path, content, sync=sync)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_where_no_file_can_be_made_the_reason_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.open", refuse)
    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "notes.txt", b"new")


@pytest.mark.parametrize(
    ("content", "start"),
    [
        (b"", 0),
        (b"torn", 0),
        (b"a\n", 2),
        (b"a\nb", 2),
        (b"a\n" + b"x" * 100_000, 2),
        (b"y" * 70_000 + b"\nz", 70_001),
        (b"a\nb\n" + b"x" * 65_535, 4),  # the end of b is the first byte of the last block
    ],
)
def test_a_torn_last_line_is_found(tmp_path: Path, content: bytes, start: int) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)
    with path.open("rb") as file:
        assert torn_line_start(file) == start


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as it:
        os.chdir(path.parent)  # names of sockets are short
        it.bind(path.name)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_loop(path: Path) -> None:
    path.symlink_to(path)


def a_terabyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


IN_PLACE = [a_pipe, a_device, a_socket, a_folder, a_loop, a_terabyte]


@pytest.mark.parametrize("put", IN_PLACE)
@pytest.mark.parametrize("use", [file_content, growing_file])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[Path], None],
    use: Callable[[Path], object],
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "notes")
    with pytest.raises(OSError):
        use(tmp_path / "notes")


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(b"12345")
    assert file_content(path, most=5) == b"12345"
    with pytest.raises(OSError, match="notes has over 4 bytes"):
        file_content(path, most=4)


def test_a_link_is_read_but_nothing_is_added_through_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\n")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert file_content(link) == b"a\n"
    with pytest.raises(OSError, match="link is a link that is not followed"):
        growing_file(link)
    with growing_file(link, follow=True) as file:
        file.write(b"b\n")
    assert (tmp_path / "file").read_bytes() == b"a\nb\n"


def modes(*paths: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


def test_a_link_in_a_files_place_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"theirs")
    path = tmp_path / "notes"
    path.symlink_to("victim")
    replace_file(path, b"ours")
    assert (path.read_bytes(), path.is_symlink()) == (b"ours", False)
    assert (tmp_path / "victim").read_bytes() == b"theirs"


def test_drafts_that_a_crash_left_are_removed_once_they_are_old(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "theirs").touch()
    (tmp_path / ".llamagym-link.partial").symlink_to("victim")
    left = user_files.draft_folder(tmp_path)
    (left / "link").symlink_to(tmp_path / "victim")
    fresh = user_files.draft_folder(tmp_path)
    os.utime(left, (0, 0))
    replace_file(tmp_path / "notes", b"")
    assert (left.exists(), fresh.exists()) == (False, True)
    user_files.discard_drafts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "victim"]
    assert (tmp_path / "victim" / "theirs").exists()


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id without HOME and without a line among the users, as containers have."""

    def unknown(uid: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for kind in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.delenv(f"LLAMAGYM_TUI_{kind}", raising=False)


def test_without_a_home_a_sentence_names_the_way_out_and_one_variable_is_enough(
    homeless: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (user_files.data_dir, user_files.cache_dir, user_files.config_dir):
        with pytest.raises(UsageError, match="set HOME, or set LLAMAGYM_TUI_DATA to a folder"):
            folder()
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    assert user_files.runs_dir() == tmp_path / "runs"
    assert user_files.cache_dir() == tmp_path / "cache"


def test_without_a_home_a_run_is_found_by_its_path_and_a_model_by_its_name(
    homeless: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (CONFIG_FILE, EVENTS_FILE):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path.parent)
    assert find_run(tmp_path.name) == tmp_path
    assert checked_model("no/such") == "no/such"
    with pytest.raises(UsageError, match="set HOME"):
        find_run(None)


def test_an_agent_is_trusted_for_once_without_a_home(homeless: None, tmp_path: Path) -> None:
    trust.remember_typed(str(tmp_path / "mine.py"))
