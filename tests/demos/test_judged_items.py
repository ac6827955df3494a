"""Files of items and of judgements on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamagym_tui.demos.judged_items import (
    JudgedItem,
    SortedItem,
    Verdict,
    actions_of,
    append_judgement,
    judgements_path,
    read_items,
    read_judgements,
    write_results,
)
from llamagym_tui.errors import UsageError

ACTIONS = ["keep", "bin"]


def judged(item: str, judgement: Verdict = "right", label: str | None = "keep") -> JudgedItem:
    return JudgedItem(item=item, shown="keep", certainty=0.5, judgement=judgement, label=label)


def test_lines_are_items_once_each(tmp_path: Path) -> None:
    path = tmp_path / "things.txt"
    path.write_text("one\n\n two \none\n", "utf-8")
    assert read_items(path) == (["one", "two"], 1)


@pytest.mark.parametrize("content", [b"", b"one\n", b"a\0b\n", b"\xff\xfe\n"])
def test_a_file_without_two_items_of_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "things.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"things.txt"):
        read_items(path)


@pytest.mark.parametrize("names", ["keep", "keep,keep", "", ",".join("abcdefghijklm")])
def test_two_to_twelve_actions_are_needed(names: str) -> None:
    with pytest.raises(UsageError, match="2 to 12"):
        actions_of(names)


def test_judgements_are_read_again_without_those_that_were_undone(tmp_path: Path) -> None:
    path = judgements_path(tmp_path / "things.txt")
    assert path.name == "things.judgements.jsonl"
    kept = judged("one", "label", "bin")
    for each in (kept, judged("two"), judged("two", "undone", None), judged("elsewhere")):
        append_judgement(path, each)
    found, sentence = read_judgements(path, ["one", "two"], ACTIONS)
    assert found == [kept]
    assert sentence == "1 judgement(s) on other items or actions are left out."


def test_a_torn_line_is_skipped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "things.judgements.jsonl"
    path.write_text('{"item": "on', "utf-8")
    append_judgement(path, judged("two"))
    found, sentence = read_judgements(path, ["one", "two"], ACTIONS)
    assert found == [judged("two")]
    assert sentence == "1 incomplete line(s) of things.judgements.jsonl are skipped."


def test_the_least_certain_come_first_and_no_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "sorted.tsv").write_text("mine", "utf-8")
    rows = [
        SortedItem("sure", "keep", 0.9, False),
        SortedItem("judged", "bin", 1.0, True),
        SortedItem("open", "bin", 0.4, False),
    ]
    table, sft = write_results(tmp_path / "things.txt", "Sort.", rows, [("judged", "bin")])
    assert (tmp_path / "sorted.tsv").read_text("utf-8") == "mine"
    assert table.name == "sorted-2.tsv"
    assert table.read_text("utf-8").splitlines() == [
        "item\taction\tcertainty\tjudged",
        "open\tbin\t0.40\tno",
        "sure\tkeep\t0.90\tno",
        "judged\tbin\t1.00\tyes",
    ]
    (line,) = sft.read_text("utf-8").splitlines()
    roles = [message["role"] for message in json.loads(line)["messages"]]
    assert roles == ["system", "user", "assistant"]
