"""Files that are read, grow, break and move, and rollouts that are found again."""

import json
import os
from pathlib import Path

import pandas
import pytest

from llamagym_tui.errors import UsageError
from llamagym_tui.rollouts.index import Rollouts, RolloutsError


def line(text: str, **more) -> str:
    return json.dumps({"prompt": "Go.", "completion": text, **more}) + "\n"


def read(path, **options) -> Rollouts:
    found = Rollouts(str(path), **options)
    read_on(found)
    return found


def read_on(rollouts: Rollouts) -> None:
    rollouts.look_again()
    while rollouts.read_on():
        pass


def said(rollouts: Rollouts) -> list[str]:
    return [rollouts.rollout(each).messages[-1].text for each in rollouts.entries]


def test_a_folder_of_verls_in_the_order_of_its_steps(tmp_path):
    for step in (10, 9):
        record = {"input": "Go.", "output": f"at {step}", "score": step / 10, "step": step}
        (tmp_path / f"{step}.jsonl").write_text(json.dumps(record) + "\n")
    found = read(tmp_path)
    assert list(found.steps) == [9, 10]
    assert [each.reward for each in found.entries] == [0.9, 1.0]
    assert said(found) == ["at 9", "at 10"]
    assert found.notes == [
        "These files have no advantages, no log-probabilities, no reference log-probabilities."
    ]


def test_the_step_may_stand_in_the_name_of_a_folder(tmp_path):
    for step in (2, 3):
        folder = tmp_path / "rollouts" / f"step_{step}"
        folder.mkdir(parents=True)
        (folder / "train_rollouts.jsonl").write_text(line(f"in {step}"))
    assert list(read(tmp_path).steps) == [2, 3]
    assert list(read(f"{tmp_path}/**/step_3/*.jsonl").steps) == [3]


def test_a_list_shows_how_the_policy_began_to_think_or_speak(tmp_path):
    path = tmp_path / "all.jsonl"
    reply = {"role": "assistant", "content": "It is\n5.", "reasoning_content": "Two  and three."}
    path.write_text(line("<think>Hm.</think>5") + json.dumps({"messages": [reply]}) + "\n")
    openings = [each.opening for each in read(path).entries]
    assert openings == ["Hm. 5", "Two and three. It is 5."]


def test_rollouts_of_a_prompt_are_a_group_whatever_their_step(tmp_path):
    path = tmp_path / "all.jsonl"
    other = json.dumps({"prompt": "Stop.", "completion": "c"}) + "\n"
    path.write_text(line("a", step=1) + line("b", step=2) + other)
    first, second, third = read(path).entries
    assert first.group == second.group != third.group


def test_a_group_that_is_named_counts_instead_of_the_prompt(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text(line("a", group=1) + line("b", group=2))
    first, second = read(path).entries
    assert first.group != second.group


def test_a_table_that_is_written_anew(tmp_path):
    path = tmp_path / "completions_00001.parquet"
    row = {"step": 1, "prompt": "Go.", "completion": "a", "long": 1.0, "advantage": 0.5}
    pandas.DataFrame([row]).to_parquet(path)
    found = read(path)
    pandas.DataFrame([{**row, "completion": each} for each in ("b", "c")]).to_parquet(path)
    read_on(found)
    assert said(found) == ["b", "c"]
    read_on(found)
    assert len(found.entries) == 2


def test_a_file_that_grows(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text(line("a"))
    found = read(path)
    with path.open("a") as file:
        file.write(line("b") + line("c")[:20])
    read_on(found)
    assert said(found) == ["a", "b"]
    read_on(found)
    cut = "The last line of all.jsonl is cut off; it is read once it is whole."
    assert cut in found.notes
    with path.open("a") as file:
        file.write(line("c")[20:] + line("d"))
    (tmp_path / "more.jsonl").write_text(line("not asked for"))
    read_on(found)
    assert said(found) == ["a", "b", "c", "d"]
    assert cut not in found.notes


def test_a_last_line_without_its_end_is_read_once(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text(line("a").rstrip("\n"))
    found = read(path)
    with path.open("a") as file:
        file.write("\n" + line("b"))
    read_on(found)
    assert said(found) == ["a", "b"]


def test_a_file_of_two_names_is_read_once(tmp_path):
    (tmp_path / "1.jsonl").write_text(line("a"))
    (tmp_path / "latest.jsonl").symlink_to("1.jsonl")
    (tmp_path / "round").symlink_to(tmp_path)
    found = read(tmp_path)
    read_on(found)
    assert said(found) == said(read(f"{tmp_path}/**/*.jsonl")) == ["a"]


def test_a_folder_that_is_empty_at_first(tmp_path):
    found = read(tmp_path)
    assert found.notes == [f"There are no rollouts at {tmp_path} yet."]
    (tmp_path / "1.jsonl").write_text(line("a"))
    read_on(found)
    assert said(found) == ["a"]


def test_what_is_broken_is_counted_and_passed_over(tmp_path):
    path = tmp_path / "all.jsonl"
    # Two writers at once, a NaN of Python's, a field of the wrong type, a record of something else.
    path.write_text(
        line("a")
        + '{"prompt": "Go.", "compl{"prompt": "Go."}\n'
        + '{"prompt": "Go.", "completion": "b", "reward": NaN}\n\n'
        + line("c", reward="high")
        + '{"loss": 1.0}\n[1]\n"text"\n{"nodes": [{"parent": []}]}\n'
        + "[" * 100_000
        + "\n"
        + line("d", reward=1)
    )
    found = read(path)
    assert said(found) == ["a", "b", "c", "d"]
    assert [each.reward for each in found.entries] == [None, None, None, 1.0]
    assert found.notes[1:] == [
        "Left out of all.jsonl: lines that are no JSON (2).",
        "Left out of all.jsonl: values of reward that are no number (1).",
        "Left out of all.jsonl: records without a conversation (4).",
    ]


def test_a_file_that_is_written_anew_in_place(tmp_path):
    path, other = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    path.write_text(line("a") + line("b"))
    other.write_text(line("z"))
    found = read(tmp_path)
    path.write_text(line("c") + line("d") + line("e"))
    read_on(found)
    assert sorted(said(found)) == ["c", "d", "e", "z"]
    assert f"{path} was written anew, and is read from its beginning." in found.notes
    assert sum(map(len, found.steps.values())) == 4


def test_a_log_that_is_rotated_can_still_be_read(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text(line("a"))
    found = read(path)
    path.rename(tmp_path / "all.jsonl.1")
    path.write_text(line("b"))
    read_on(found)
    assert said(found) == ["a", "b"]


def test_logs_of_which_each_takes_the_name_of_an_older_one(tmp_path):
    newest, older = tmp_path / "log.jsonl", tmp_path / "log.1.jsonl"
    older.write_text(line("a"))
    newest.write_text(line("b"))
    found = read(tmp_path)
    older.rename(tmp_path / "log.2.jsonl")
    newest.rename(older)
    newest.write_text(line("c"))
    read_on(found)
    assert said(found) == ["a", "b", "c"]


def test_a_copy_that_is_renewed_is_read_on(tmp_path):
    path, copy = tmp_path / "all.jsonl", tmp_path / "copy"
    path.write_text(line("a"))
    found = read(path)
    copy.write_text(line("a") + line("b"))
    copy.rename(path)
    read_on(found)
    assert said(found) == ["a", "b"]


def test_a_file_that_is_removed(tmp_path):
    path = tmp_path / "1.jsonl"
    path.write_text(line("a"))
    (tmp_path / "2.jsonl").write_text(line("b"))
    found = read(tmp_path)
    path.unlink()
    read_on(found)
    assert f"{path} was removed; its rollouts cannot be opened any more." in found.notes
    with pytest.raises(RolloutsError, match=r"1\.jsonl was removed or changed"):
        found.rollout(found.entries[0])
    assert found.rollout(found.entries[1]).said == "b"


def test_what_cannot_be_read_is_said(tmp_path):
    (tmp_path / "1.parquet").write_bytes(b"PAR1 torn")
    (tmp_path / "project.db").write_bytes(b"no database")
    (tmp_path / "2.jsonl").write_text(line("a"))
    os.mkfifo(tmp_path / "3.jsonl")
    found = read(tmp_path)
    assert said(found) == ["a"]
    notes = "\n".join(found.notes)
    assert "1.parquet cannot be read" in notes
    assert "project.db cannot be read: file is not a database." in notes


def test_nothing_there():
    with pytest.raises(UsageError, match="There are no rollouts at"):
        Rollouts("nowhere/*.jsonl")


def test_tokens_are_shown_by_their_ids_without_a_tokenizer(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text(line("ab", token_ids=[17, 4], logprobs=[-1, -2]))
    found = read(path)
    (entry,) = found.entries
    assert [token.text for token in found.rollout(entry).messages[-1].tokens] == ["⟨17⟩", "⟨4⟩"]
    assert entry.length == 2
    assert found.notes[-1] == "Tokens are shown by their ids; --model NAME gives their texts."
    named = read(path, texts_of=lambda ids: [f"t{each}" for each in ids])
    tokens = named.rollout(named.entries[0]).messages[-1].tokens
    assert [token.text for token in tokens] == ["t17", "t4"]


def test_an_index_is_made_in_slices(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text("".join(line("x" * 2_000, step=step) for step in range(20_000)))
    found = Rollouts(str(path))
    assert found.read_on()
    assert 0 < len(found.entries) < 20_000
    done, size = found.progress
    assert 0 < done < size == Path(path).stat().st_size
    while found.read_on():
        pass
    assert list(found.steps) == list(range(20_000))
    assert found.progress == (size, size)
