"""Deleting, restoring and editing recorded episodes: nothing is lost, even if another program writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from filelock import FileLock

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import edits
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import encode
from llamagym_tui.demos.writer import DemoWriter
from llamagym_tui.errors import ActionParseError, DemoFileError
from tests.demos.test_files import a_demo

AGENT = BlackjackAgent()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "demos" / "blackjack.jsonl"
    for seed in range(4):
        demo_files.append(file, a_demo(seed=seed))
    return file


def seeds(path: Path) -> list[int | None]:
    return [demo.seed for demo in demo_files.read(path)]


def line(seed: int) -> bytes:
    return encode(a_demo(seed=seed))


def test_what_is_removed_stands_in_the_trash(path: Path) -> None:
    edits.remove(path, [line(1), line(3)])
    assert seeds(path) == [0, 2]
    assert seeds(edits.trash_path(path)) == [1, 3]


def test_what_is_put_back_stands_where_it_stood_and_no_more_in_the_trash(path: Path) -> None:
    removed = edits.remove(path, [line(3), line(1)])
    demo_files.append(path, a_demo(seed=4))
    edits.put_back(path, removed)
    assert seeds(path) == [0, 1, 2, 3, 4]
    assert seeds(edits.trash_path(path)) == []


def test_of_equal_lines_one_is_removed(path: Path) -> None:
    demo_files.append(path, a_demo(seed=1))
    edits.remove(path, [line(1)])
    assert seeds(path) == [0, 2, 3, 1]


def test_a_line_that_is_gone_is_an_error_and_changes_nothing(path: Path) -> None:
    with pytest.raises(DemoFileError, match="no longer"):
        edits.remove(path, [line(1), line(9)])
    assert seeds(path) == [0, 1, 2, 3]
    assert not edits.trash_path(path).exists()


def test_a_faulty_line_can_be_removed(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"nonsense\n")
    edits.remove(path, [b"nonsense"])
    assert seeds(path) == [0, 1, 2, 3]


def test_a_change_waits_for_another_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamagym_tui.demos.jsonl.LOCK_TIMEOUT_S", 0.05)
    with FileLock(f"{path}.lock"), pytest.raises(DemoFileError, match="another program holds"):
        edits.remove(path, [line(1)])
    assert seeds(path) == [0, 1, 2, 3]


def test_nothing_is_lost_while_another_process_appends(path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from llamagym_tui.demos import files as demo_files
        from tests.demos.test_files import a_demo

        for seed in range(100, 140):
            demo_files.append(Path(sys.argv[1]), a_demo(seed=seed))
        """
    )
    writer = subprocess.Popen([sys.executable, "-c", program, str(path)])
    while writer.poll() is None:
        edits.put_back(path, edits.remove(path, [line(1)]))
        edits.remove(path, [line(2)])
        edits.put_back(path, [edits.Removed(2, line(2))])
    assert writer.returncode == 0
    assert seeds(path) == [0, 1, 2, 3, *range(100, 140)]


@pytest.mark.parametrize("full", ["the file", "the trash"])
def test_a_full_disk_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    before, sync = path.read_bytes(), os.fsync
    refused = "*.partial" if full == "the file" else "*.trash"

    def refuse(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino in [
            file.stat().st_ino for file in path.parent.glob(refused)
        ]:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(DemoFileError, match="No space left"):
        edits.remove(path, [line(1)])
    assert path.read_bytes() == before
    assert [name.name for name in path.parent.glob("*.partial")] == []


def test_a_torn_last_line_is_moved_aside_before_a_change(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b'{"messages": [')
    edits.remove(path, [line(0)])
    assert seeds(path) == [1, 2, 3]
    assert Path(f"{path}.torn").read_bytes() == b'{"messages": [\n'


def test_an_edited_reply_keeps_the_episode() -> None:
    reply = 'Low: one more. {"action": 1}'
    edited = edits.with_reply(a_demo(), 0, reply, AGENT)
    assert edited.messages[2]["content"] == reply
    assert (edited.actions, edited.episode_return, edited.source) == ([1, 0], 1.0, "correction")


def test_another_action_ends_the_episode_there(tmp_path: Path) -> None:
    edited = edits.with_reply(a_demo(), 0, '{"action": 0}', AGENT)
    assert [message["role"] for message in edited.messages] == ["system", "user", "assistant"]
    assert (edited.actions, edited.rewards, edited.episode_return, edited.length) == (
        [0],
        [0.0],
        0.0,
        1,
    )
    assert (edited.end, edited.source) == ("truncated", "correction")
    last = edits.with_reply(a_demo(), 1, '{"action": 1}', AGENT)
    assert (last.rewards, last.episode_return) == ([0.0, 0.0], 0.0), (
        "what was paid was paid for another action"
    )
    demo_files.append(tmp_path / "one.jsonl", edited)
    assert demo_files.check(tmp_path / "one.jsonl", AGENT) == []


@pytest.mark.parametrize("reply", ["", "The weather is fine.", '{"action": 7}'])
def test_a_reply_without_a_legal_action_is_refused_with_an_example(reply: str) -> None:
    example = re.escape('for example, {"action": 0} names one.')
    with pytest.raises(ActionParseError, match=example):
        edits.with_reply(a_demo(), 0, reply, AGENT)


def test_an_edited_line_stands_in_the_old_ones_place(path: Path) -> None:
    edits.exchange(path, line(1), line(9))
    assert seeds(path) == [0, 9, 2, 3]


def test_an_episode_can_be_taken_back_before_and_after_it_is_written(tmp_path: Path) -> None:
    writer = DemoWriter(tmp_path / "own.jsonl")
    for seed in range(3):
        writer.add(a_demo(seed=seed))
    writer.take_back(a_demo(seed=1))
    writer.save()
    assert (writer.saved, writer.waiting, writer.fault) == (2, 0, "")
    writer.take_back(a_demo(seed=2))
    assert (writer.saved, writer.waiting, writer.fault) == (1, 0, "")
    assert seeds(writer.path) == [0]
    assert seeds(edits.trash_path(writer.path)) == [2]
