"""Demonstrations on disk: whole lines whatever happens, faults by line, and files that others read as they are."""

from __future__ import annotations

import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from filelock import FileLock

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, encode
from llamagym_tui.demos.faults import Fault, check
from llamagym_tui.errors import DemoFileError
from llamagym_tui.game.agent_base import prompt_sha256
from llamagym_tui.game.chat import assistant, system, user

PROMPT = "Play well."


def a_demo(**changes: Any) -> Demonstration:
    fields: dict[str, Any] = {
        "messages": [
            system(PROMPT),
            user("Your total: 12."),
            assistant('{"action": 1}'),
            user("Your total: 20."),
            assistant('{"action": 0}'),
        ],
        "agent": "blackjack",
        "env_id": "Blackjack-v1",
        "env_kwargs": {"natural": False, "sab": False},
        "seed": 3,
        "actions": [1, 0],
        "rewards": [0.0, 1.0],
        "episode_return": 1.0,
        "length": 2,
        "end": "terminated",
        "source": "human",
        "model": None,
        "prompt_sha256": prompt_sha256(PROMPT),
        "recorded_at": "2026-01-31T12:00:00Z",
    }
    return Demonstration(**{**fields, **changes})


def write_line(path: Path, **changes: Any) -> None:
    """A line that differs from a good one in its plain values; None takes a field away."""
    value = {**msgspec.to_builtins(a_demo()), **changes}
    path.write_bytes(
        msgspec.json.encode({name: item for name, item in value.items() if item != "GONE"}) + b"\n"
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "demos" / "blackjack.jsonl"


def test_what_is_appended_is_read_in_order(path: Path) -> None:
    first, second = a_demo(seed=1), a_demo(seed=2)
    demo_files.append(path, first)
    demo_files.append(path, second)
    assert demo_files.read(path) == [first, second]
    assert path.read_bytes().count(b"\n") == 2


def test_numbers_of_numpy_become_plain_ones(path: Path) -> None:
    demo_files.append(
        path, a_demo(actions=[np.int64(1), np.int64(0)], rewards=[np.float32(0.5), 0.5])
    )
    assert demo_files.read(path)[0].actions == [1, 0]
    assert check(path) == []


@pytest.mark.parametrize("changes", [{"actions": [object(), 0]}, {"rewards": [float("nan"), 1.0]}])
def test_what_json_cannot_hold_is_not_saved(path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(DemoFileError, match="not saved"):
        demo_files.append(path, a_demo(**changes))
    assert not path.exists()


def test_a_writer_waits_for_the_lock_and_fails_if_it_is_never_free(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamagym_tui.demos.files.LOCK_TIMEOUT_S", 0.05)
    demo_files.append(path, a_demo(seed=1))
    with FileLock(f"{path}.lock"), pytest.raises(DemoFileError, match="another program holds"):
        demo_files.append(path, a_demo(seed=2))
    demo_files.append(path, a_demo(seed=3))
    assert [demo.seed for demo in demo_files.read(path)] == [1, 3]


def test_a_torn_last_line_is_no_demonstration_and_is_moved_aside(path: Path) -> None:
    demo_files.append(path, a_demo(seed=1))
    with open(path, "ab") as file:
        file.write(b'{"messages": [{"role": "sys')
    assert len(demo_files.read(path)) == 1
    demo_files.append(path, a_demo(seed=2))
    assert [demo.seed for demo in demo_files.read(path)] == [1, 2]
    assert Path(f"{path}.torn").read_bytes() == b'{"messages": [{"role": "sys\n'


def test_a_whole_last_line_without_an_end_is_kept(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(encode(a_demo(seed=1)))
    demo_files.append(path, a_demo(seed=2))
    assert [demo.seed for demo in demo_files.read(path)] == [1, 2]


@pytest.mark.skipif(sys.platform == "win32", reason="limits on file sizes are POSIX")
def test_a_full_disk_leaves_the_file_as_it_was(path: Path) -> None:
    demo_files.append(path, a_demo(seed=1))
    before = path.read_bytes()
    # A limit in the middle of the next line: the system writes a part and then refuses, as a full disk does.
    program = textwrap.dedent(
        """
        import resource, sys
        from pathlib import Path
        from llamagym_tui.demos import files as demo_files
        from llamagym_tui.errors import DemoFileError

        path = Path(sys.argv[1])
        [demo] = demo_files.read(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100,) * 2)
        try:
            demo_files.append(path, demo)
        except DemoFileError as error:
            sys.exit(f"refused: {error}")
        """
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=600
    )
    assert outcome.stderr.startswith("refused: The episode was not saved"), outcome.stderr
    assert path.read_bytes() == before


def test_a_faulty_line_is_refused_by_its_number(path: Path) -> None:
    demo_files.append(path, a_demo())
    with open(path, "ab") as file:
        file.write(b"{}\n")
    with pytest.raises(DemoFileError, match=r"line 2: .*demos check"):
        demo_files.read(path)


def test_a_file_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(DemoFileError, match="cannot be read"):
        demo_files.read(path)


def test_a_good_file_has_no_faults(path: Path) -> None:
    demo_files.append(path, a_demo(seed=1))
    demo_files.append(path, a_demo(seed=2))
    assert check(path, BlackjackAgent()) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "The file is empty"),
        (b"hello\n", "no demonstration: JSON is malformed"),
        (b'{"messages": [', "is incomplete"),
        (b'{"agent": "\xff"}\n', "can't decode byte 0xff"),
        (b"\xef\xbb\xbf{}\n", "missing required field"),
        (b'{"actions": [' + b"[" * 100_000 + b"\n", "nested too deep"),
        (b"x" * 2**24 + b"\n", "over 16,777,216 bytes"),
    ],
)
def test_a_line_that_is_no_object_is_a_fault(path: Path, content: bytes, sentence: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    (fault,) = check(path)
    assert sentence in fault.sentence
    assert fault.line == (1 if content.strip() else 0)


def test_odd_lines_of_other_programs_are_read_and_the_next_one_is_kept(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"\xef\xbb\xbf" + encode(a_demo(seed=1)) + b"\r\n\n \n")
    demo_files.append(path, a_demo(seed=2))
    assert [demo.seed for demo in demo_files.read(path)] == [1, 2]


def test_a_line_is_removed_and_the_others_stay(path: Path) -> None:
    for seed in (1, 2, 3):
        demo_files.append(path, a_demo(seed=seed))
    path.chmod(0o640)
    demo_files.remove(path, encode(a_demo(seed=2)))
    assert [demo.seed for demo in demo_files.read(path)] == [1, 3]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(DemoFileError, match="no longer in"):
        demo_files.remove(path, encode(a_demo(seed=2)))
    with open(path, "ab") as file:
        file.write(b"x" * 2**24 + b"\n")
    with pytest.raises(DemoFileError, match="remove it with an editor"):
        demo_files.remove(path, encode(a_demo(seed=1)))


def test_a_writer_keeps_what_it_could_not_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = demo_files.DemoWriter(path)
    monkeypatch.setattr("llamagym_tui.demos.files.LOCK_TIMEOUT_S", 0.01)
    path.parent.mkdir()
    for seed in (1, 2, 3):
        writer.add(a_demo(seed=seed))
    with FileLock(f"{path}.lock"):
        writer.save()
    assert (writer.saved, writer.waiting, "another program" in writer.fault) == (0, 3, True)
    writer.save()
    assert (writer.saved, writer.waiting, writer.fault) == (3, 0, "")
    assert [demo.seed for demo in demo_files.read(path)] == [1, 2, 3]


def turns(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in pairs]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"schema": 2}, "schema is 2"),
        ({"env_id": "GONE"}, "missing required field `env_id`"),
        ({"length": "two"}, "Expected `int`"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "Invalid enum value 'tool'"),
        ({"actions": [1]}, "2 replies but 1 actions"),
        ({"rewards": [1.0]}, "1 rewards but 2 actions"),
        ({"length": 3}, "3 turns but 2 actions"),
        ({"episode_return": -1.0}, "given as -1, but the rewards add up to 1"),
        ({"messages": []}, "conversation is empty"),
        (
            {"messages": turns(("user", "a"), ("system", PROMPT), ("assistant", "b"))},
            "take turns",
        ),
        ({"messages": turns(("system", PROMPT), ("assistant", "b"), ("user", "a"))}, "take turns"),
        (
            {
                "messages": turns(
                    ("system", PROMPT), ("user", "a"), ("user", "b"), ("assistant", "c")
                )
            },
            "take turns",
        ),
        (
            {"messages": turns(("system", PROMPT), ("user", "a"), ("assistant", " "))},
            "Message 3 (assistant) is empty",
        ),
    ],
)
def test_a_demonstration_that_does_not_add_up_is_a_fault(
    path: Path, changes: dict[str, Any], sentence: str
) -> None:
    path.parent.mkdir()
    write_line(path, **changes)
    faults = check(path)
    assert any(sentence in fault.sentence for fault in faults), faults
    assert all(fault.line == 1 for fault in faults)


def test_an_episode_that_is_there_twice_is_a_fault_of_the_later_line(path: Path) -> None:
    for seed in (1, 2, 1, 1):
        demo_files.append(path, a_demo(seed=seed))
    sentence = "This is the same episode as in line 1."
    assert check(path) == [Fault(3, sentence), Fault(4, sentence)]


def test_a_reply_that_does_not_name_its_action_is_a_fault(path: Path) -> None:
    messages = [*a_demo().messages[:3], user("Your total: 20."), assistant("Hm.")]
    demo_files.append(path, a_demo(messages=messages, actions=[0, 0]))
    assert [fault.sentence for fault in check(path, BlackjackAgent())] == [
        "Turn 1: the reply says 1, but the action was 0.",
        "Turn 2: the agent reads no action in the reply.",
    ]


def test_datasets_reads_the_file_as_it_is(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    demo_files.append(path, a_demo(env_kwargs={}))
    demo_files.append(path, a_demo(model="bundled", seed=None, end="truncated"))
    rows = datasets.load_dataset(
        "json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert rows.num_rows == 2
    assert rows[0]["messages"] == list(a_demo().messages)
    assert rows[0]["actions"] == [1, 0]
