"""Past runs in a table: which columns have room, what stands in them, and in which order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs

from llamagym_tui.config import PPOConfig, RunConfig
from llamagym_tui.returns import ReturnSeries
from llamagym_tui.run_store import RunInfo
from llamagym_tui.screens.past_runs.run_list import RunList
from llamagym_tui.screens.past_runs.run_table import (
    COLUMNS,
    RunRow,
    played_text,
    read_row,
    seeds_of,
)
from llamagym_tui.state.run_summary import RunSummary


def row(
    name: str, minute: int, returns: list[float] | None = None, agent: str = "blackjack"
) -> RunRow:
    info = RunInfo(
        run_dir=Path(name),
        config=RunConfig(agent=agent, run_dir=name),
        started_at=datetime(2026, 1, 2, 12, minute, tzinfo=UTC),
        has_checkpoint=False,
    )
    if returns is None:
        return RunRow(info=info)
    series = ReturnSeries().add(returns)
    return RunRow(
        info=info, summary=RunSummary(returns=series, episodes=len(returns), ending="finished")
    )


ROWS = [
    row("new", 9, [-1.0], agent="/home/me/cliff.py"),
    row("twin", 7, [1.0, 1.0]),
    row("unread", 5),
    row("old", 0, [1.0, 1.0]),
]
"""The latest first, as they are listed."""


def order(by: str, *, backwards: bool = False) -> list[str]:
    runs = RunList()
    runs.sorted_by, runs.backwards = by, backwards
    return [row.key for row in runs.ordered(ROWS)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("when", ["new", "twin", "unread", "old"]),
        ("return", ["twin", "old", "new", "unread"]),
        ("episodes", ["twin", "old", "new", "unread"]),
        ("agent", ["twin", "unread", "old", "new"]),
    ],
)
def test_the_latest_best_and_longest_come_first_and_equal_ones_by_time(
    column: str, expected: list[str]
):
    assert order(column) == expected


def test_backwards_the_oldest_comes_first():
    assert order("when", backwards=True) == ["old", "unread", "twin", "new"]


def test_a_row_says_what_is_known():
    texts = {column.title: column.text(ROWS[0]) for column in COLUMNS}
    assert (texts["when"], texts["agent"], texts["return"]) == (
        "02 Jan 12:09",
        "cliff.py",
        "−1.000",
    )
    assert not any(column.text(ROWS[2]) for column in COLUMNS[3:-1])
    assert COLUMNS[-1].text(ROWS[2]) == "…"


@pytest.mark.parametrize(
    ("mean", "text"),
    [(28.3531, "+28.353"), (-123.456, "−123.5"), (-3135.44, "−3135.4"), (-31354.4, "−31354")],
)
def test_a_large_return_fits_its_column(mean: float, text: str):
    column = next(column for column in COLUMNS if column.title == "return")
    assert column.text(row("far", 0, [mean])) == text
    assert len(text) <= column.width


def test_a_narrow_table_leaves_columns_out():
    assert [column.title for column in RunList.columns_at(56)] == [
        "when",
        "agent",
        "return",
        "curve",
    ]
    assert RunList.columns_at(100) == [
        column for column in COLUMNS if column.title not in ("tags", "prompt", "updates", "in")
    ]
    assert RunList.columns_at(190) == list(COLUMNS)


def test_a_run_that_cannot_be_read_keeps_its_row(tmp_path: Path):
    read = read_row(row(str(tmp_path / "gone"), 0))
    assert (read.summary, read.ending) == (None, "unreadable")
    assert "cannot be read" in read.fault


def test_one_of_a_kind_is_told_as_one():
    summary = RunSummary(episodes=1, updates=1, played_s=90.0)
    assert played_text(summary) == "1 episode, 1 update, 1.5 min"


def test_the_words_of_a_runs_prompt_stand_where_there_is_room() -> None:
    (prompt,) = (column for column in RunList.columns_at(180) if column.title == "prompt")
    run = row("own words", 1)
    assert prompt.text(run) == ""
    config = structs.replace(run.info.config, system_prompt="Stick at 17 or more, else hit.")
    assert prompt.text(RunRow(info=replace(run.info, config=config))) == "“Stick at 17 or more, …”"


def seeded(name: str, seed: int, returns: list[float] | None = None, **settings: object) -> RunRow:
    made = row(name, 0, [1.0] if returns is None else returns)
    return replace(
        made,
        info=replace(made.info, config=structs.replace(made.info.config, seed=seed, **settings)),
    )


def test_the_seeds_of_a_run_are_those_that_differ_from_it_in_seed_folder_and_limits_only():
    why = {"ppo.gamma": "of the first batch"}
    chosen = seeded("chosen", 2, measured=why)
    longer = seeded(
        "longer",
        1,
        episodes=9,
        minutes=2.0,
        measured_threads=1,
        ppo=PPOConfig(gamma=0.5),
        measured=why,
    )
    others = [
        seeded("given", 3, ppo=PPOConfig(gamma=0.5)),  # gamma was not measured there
        seeded("twin", 2, measured=why),
        seeded("wide", 4, n_envs=3, measured=why),
        seeded("empty", 5, [], measured=why),
        row("unread", 5),
        longer,
        chosen,
    ]
    assert seeds_of(chosen, others) == [longer, chosen]
    assert seeds_of(row("unread", 5), others) == [row("unread", 5)]
