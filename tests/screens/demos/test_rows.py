"""A file of demonstrations as a person looks at it: faults next to their lines, filters, orders and counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import files as demo_files
from llamagym_tui.game.chat import system
from llamagym_tui.screens.demos.rows import (
    EpisodeList,
    EpisodeRow,
    read_rows,
    summary_text,
)
from tests.demos.test_files import a_demo

AGENT = BlackjackAgent()


@pytest.fixture
def rows(tmp_path: Path) -> list[EpisodeRow]:
    path = tmp_path / "blackjack.jsonl"
    demo_files.append(path, a_demo(seed=0))
    demo_files.append(
        path, a_demo(seed=1, rewards=[0.0, -1.0], episode_return=-1.0, source="model")
    )
    with open(path, "ab") as file:
        file.write(b"nonsense\n")
    demo_files.append(path, a_demo(seed=2, actions=[1, 1], recorded_at="2026-02-01T12:00:00Z"))
    return read_rows(path, AGENT)


def lines(rows: list[EpisodeRow]) -> list[int]:
    return [row.line for row in rows]


def test_faults_belong_to_their_lines(rows: list[EpisodeRow]) -> None:
    assert [len(row.faults) for row in rows] == [0, 0, 1, 1]
    assert rows[2].demo is None
    assert rows[3].faults == ("Turn 2: the reply says 0, but the action was 1.",)


def test_episodes_under_another_prompt_than_the_present_one_are_marked(tmp_path: Path) -> None:
    path, other = tmp_path / "blackjack.jsonl", [system("Hit below 13."), *a_demo().messages[1:]]
    demo_files.append(path, a_demo(seed=0))
    demo_files.append(path, a_demo(seed=1, messages=other))
    demo_files.append(path, a_demo(seed=2, messages=other[1:]))

    def marked(prompt: str | None) -> list[int]:
        return [row.line for row in read_rows(path, AGENT, prompt) if row.other_prompt]

    assert marked("Hit below 13.") == [1, 3]
    assert marked("") == [1, 2]
    assert marked(None) == []


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "none.jsonl", AGENT) == []


def test_rows_are_sorted_and_broken_lines_come_last(rows: list[EpisodeRow]) -> None:
    def order(by: str, *, backwards: bool) -> list[int]:
        episodes = EpisodeList()
        episodes.sorted_by, episodes.backwards = by, backwards
        return lines(episodes.ordered(rows))

    assert order("return", backwards=False) == [2, 1, 4, 3]
    assert order("return", backwards=True) == [1, 4, 2, 3]
    assert order("recorded", backwards=True) == [4, 1, 2, 3]
    assert order("line", backwards=True) == [4, 2, 1, 3]


def test_episodes_sources_returns_and_actions_are_counted(rows: list[EpisodeRow]) -> None:
    sources, returns, actions = (
        " ".join(line.split()) for line in summary_text(rows, AGENT).plain.splitlines()
    )
    assert sources == "sources human 2 · model 1"
    assert returns == "returns mean +0.333 · +1 ██████████ 2 · −1 █████ 1"
    assert actions == "actions hit ██████████ 67% · stick █████ 33%"
    assert sum(bool(row.faults) for row in rows) == 2


def test_of_many_different_returns_the_range_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "blackjack.jsonl"
    for seed in range(8):
        demo_files.append(
            path, a_demo(seed=seed, rewards=[0.0, float(seed)], episode_return=float(seed))
        )
    assert "mean +3.500 · from 0 to +7" in summary_text(read_rows(path, AGENT), AGENT).plain
