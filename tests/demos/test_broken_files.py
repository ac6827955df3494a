"""Broken files of demonstrations: what cannot be read is a row with its number, the rest stays, and nothing raises."""

from __future__ import annotations

import contextlib
import json
import os
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import edits, export
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import MOST_LINE, encode
from llamagym_tui.demos.training_data import training_data
from llamagym_tui.demos.writer import DemoWriter
from llamagym_tui.errors import DemoFileError
from llamagym_tui.game.chat import assistant, user
from llamagym_tui.screens.demos.rows import (
    EpisodeList,
    episode_text,
    matching,
    read_rows,
    summary_text,
)
from tests.demos.test_files import a_demo

AGENT = BlackjackAgent()
GOOD = encode(a_demo(seed=1))


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def line(**changes: Any) -> bytes:
    """A good line with other values; bytes are put in as they are."""
    raw = {name: msgspec.Raw(value) for name, value in changes.items() if isinstance(value, bytes)}
    return msgspec.json.encode({**msgspec.to_builtins(a_demo()), **changes, **raw})


UNREADABLE: dict[str, bytes] = {
    "invalid UTF-8": line(model=b'"\xff\xfe"'),
    "a surrogate in UTF-8": line(model=b'"\xed\xa0\x80"'),
    "a lone surrogate escaped": line(model=b'"\\ud800"'),
    "a surrogate pair in the wrong order": line(model=b'"\\udc00\\ud800"'),
    "UTF-16": GOOD.decode().encode("utf-16-le").replace(b"\n", b""),
    "nothing but NUL": b"\0" * 5000,
    "a NUL in a string": line(model=b'"a\0b"'),
    "a NUL at the end": GOOD + b"\0",
    "lists 100,000 deep": deep(100_000),
    "objects 100,000 deep": b'{"a":' * 100_000,
    "an action 100,000 deep": line(actions=b"[" + deep(100_000) + b",0]"),
    "an action 900 deep": line(actions=b"[" + deep(900) + b",0]"),
    "an argument 60 deep": line(env_kwargs=b'{"a":' + deep(60) + b"}"),
    "an unknown field 100,000 deep": line(extra=deep(100_000)),
    "NaN": line(episode_return=b"NaN"),
    "an infinity": line(rewards=b"[Infinity,0]"),
    "a number beyond floats": line(episode_return=b"1e999"),
    "an integer of 5,000 digits": line(length=b"1" * 5000),
    "a string for a number": line(length="2"),
    "null for a list": line(messages=None),
    "a list for an object": b"[]",
    "a number for an object": b"7",
    "an unknown role": line(messages=[{"role": "tool", "content": "x"}]),
    "a content of another type": line(messages=[{"role": "user", "content": 7}]),
    "a key that is no number": line(replaced_replies={"one": "x"}),
    "half a line": GOOD[: len(GOOD) // 2],
    "two objects in a line": GOOD + GOOD,
    "a carriage return within": GOOD[:20] + b"\r" + GOOD[20:40],
    "17 MiB": line(model="x" * (17 * 2**20)),
    "a good object and 17 MiB of blanks": GOOD + b" " * (17 * 2**20),
}
ODD: dict[str, bytes] = {
    "keys that are there twice": GOOD[:-1] + b"," + GOOD[1:],
    "returns beyond what can be added": line(rewards=[1e308, 1e308], episode_return=1e308),
    "a length of 4,000 digits": line(length=b"-" + b"1" * 4000),
    "escapes and line ends in every text": line(
        source="\x1b[2J\r\n",
        recorded_at="\x1b]52;\x07",
        agent="\0",
        messages=[user("\x9b"), assistant("[/]\u202e")],
    ),
    "a schema of a megabyte": line(schema="x" * 2**20),
    "actions of every type": line(actions=[None, {"a": [[]]}], rewards=[0, 0]),
    "a thousand messages": line(messages=[user(""), assistant("")] * 500),
    "no messages": line(messages=[], actions=[], rewards=[]),
    "replies of turns that are not there": line(replaced_replies={"-1": "x", "99": "y"}),
    "a seed of 300 digits": line(seed=b"1" * 300),
}


def shown(path: Path) -> None:
    """Everything that the screen of demonstrations draws of a file."""
    rows = read_rows(path, AGENT)
    episodes = EpisodeList()
    for row in episodes.ordered(matching(rows, "")):
        assert "\n" not in episodes.line(row, 200).plain
        assert len(str(episode_text(row, AGENT, 80))) < 2_000_000
    summary_text(rows, AGENT)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_line_is_an_unreadable_row_and_the_next_hand_is_kept(
    tmp_path: Path, name: str, torn: bool
) -> None:
    path, bad = tmp_path / "blackjack.jsonl", UNREADABLE[name]
    before = GOOD + b"\n" + bad + b"" * torn + b"\n" * (not torn)
    path.write_bytes(before)
    assert [row.demo is None for row in read_rows(path, AGENT)] == [False, True]
    [summed] = demo_files.summaries(tmp_path)
    assert (summed.episodes, summed.unreadable, summed.fault) == (1, (2,), "")
    assert [fault.line for fault in demo_files.check(path, AGENT)][-1] == 2
    with pytest.raises(DemoFileError, match="line 2: "):
        training_data(AGENT, path)
    if not torn:
        out = tmp_path / "out"
        for use in (
            lambda: demo_files.merge([path], out),
            lambda: export.to_lines(path, out, "pairs"),
        ):
            with pytest.raises(DemoFileError, match="line 2: "):
                use()
    shown(path)
    writer = DemoWriter(path)
    writer.add(a_demo(seed=7))
    writer.save()
    assert (writer.saved, writer.waiting, writer.fault) == (1, 0, "")
    after = path.read_bytes()
    aside = Path(f"{path}.torn")
    assert after.endswith(encode(a_demo(seed=7)) + b"\n")
    assert after.startswith(GOOD + b"\n" if torn else before)
    if torn:
        assert aside.read_bytes() == bad + b"\n"


BOM = b"\xef\xbb\xbf"
OTHER = encode(a_demo(seed=2))
HARMLESS = {
    "a byte order mark": BOM + GOOD + b"\n" + OTHER + b"\n",
    "a byte order mark in the middle": GOOD + b"\n" + BOM + OTHER + b"\n",
    "blank lines": b"\n\n" + GOOD + b"\n \t \r\n" + OTHER + b"\n\n",
    "a last line without its end": GOOD + b"\n" + OTHER,
    "blanks without an end": GOOD + b"\n" + OTHER + b"\n \t",
    "line ends of Windows": GOOD + b"\r\n" + OTHER + b"\r\n",
    "a JSON array": b"[" + GOOD + b"," + OTHER + b"]",
    "a JSON array over many lines": BOM
    + json.dumps([json.loads(GOOD), json.loads(OTHER)], indent=2).encode(),
    "all at once": BOM + b"\n\n" + BOM + GOOD + b"\r\n\n" + OTHER,
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_other_programs_make_of_a_file_is_harmless(tmp_path: Path, name: str) -> None:
    path = tmp_path / "blackjack.jsonl"
    path.write_bytes(HARMLESS[name])
    assert demo_files.check(path, AGENT) == []
    both, third = [a_demo(seed=1), a_demo(seed=2)], a_demo(seed=3)
    assert demo_files.read(path) == training_data(AGENT, path).demonstrations == both
    assert [row.demo for row in read_rows(path, AGENT)] == both
    assert demo_files.summaries(path)[0].unreadable == ()
    demo_files.append(path, third)
    assert demo_files.read(path) == [*both, third]
    assert not Path(f"{path}.torn").exists()
    removed = edits.remove(path, [GOOD])
    assert demo_files.read(path) == [both[1], third]
    edits.put_back(path, removed)
    assert demo_files.read(path) == [*both, third]


def test_an_array_is_taken_apart_before_a_change_and_one_that_is_none_stays(tmp_path: Path) -> None:
    path = tmp_path / "blackjack.jsonl"
    path.write_bytes(HARMLESS["a JSON array"])
    edits.remove(path, [GOOD])
    assert path.read_bytes() == OTHER + b"\n"
    path.write_bytes(b"[" + GOOD + b"," + b'{"x": "' + b"y" * MOST_LINE + b'"}]')
    assert [(line.too_long, line.content) for line in demo_files.lines_of(path)] == [
        (False, GOOD),
        (True, b""),
    ]
    path.write_bytes(b"[" + GOOD + b"," + OTHER)
    assert [fault.line for fault in demo_files.check(path, AGENT)] == [1]


@pytest.mark.parametrize("name", ODD)
def test_a_line_with_odd_values_is_shown_checked_and_exported_without_a_fall(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "blackjack.jsonl"
    path.write_bytes(GOOD + b"\n" + ODD[name] + b"\n")
    shown(path)
    demo_files.summaries(path)
    assert all(len(fault.sentence) < 500 for fault in demo_files.check(path, AGENT))
    to_pairs = partial(export.to_lines, form="pairs")
    for use, first in ((training_data, AGENT), (to_pairs, path), (demo_files.merge, [path])):
        with contextlib.suppress(DemoFileError):
            use(first, path if use is training_data else tmp_path / "out.jsonl")


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_of_200_megabytes_takes_little_memory(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "blackjack.jsonl"
    with path.open("wb") as file:
        file.write(GOOD + b"\n")
        file.truncate(200 * 10**6)
        file.seek(0, 2)
        file.write(end)
    tracemalloc.start()
    try:
        shown(path)
        assert demo_files.summaries(path)[0].unreadable == (2,)
        assert demo_files.check(path)[0].sentence.startswith("The line has over 16,777,216 bytes")
        if end:
            with pytest.raises(DemoFileError, match="line 2 has over 16,777,216 bytes"):
                edits.remove(path, [GOOD])
            demo_files.append(path, a_demo(seed=2))
        assert tracemalloc.get_traced_memory()[1] < 100 * 10**6
    finally:
        tracemalloc.stop()


def test_a_file_beyond_four_gibibytes_or_no_file_at_all_is_one_row_of_the_list(
    tmp_path: Path,
) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.truncate(2**40)
    os.mkfifo(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").mkdir()
    (tmp_path / "d.jsonl").symlink_to("/dev/zero")
    (tmp_path / "e.jsonl").symlink_to("e.jsonl")
    (tmp_path / "f.jsonl").write_bytes(GOOD + b"\n")
    found = demo_files.summaries(tmp_path)
    assert [file.path.name for file in found if file.fault] == [f"{name}.jsonl" for name in "abcde"]
    assert (found[5].episodes, found[5].fault) == (1, "")
    for file in found[:5]:
        for use in (demo_files.read, lambda path: demo_files.append(path, a_demo())):
            with pytest.raises(DemoFileError):
                use(file.path)
