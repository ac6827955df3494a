"""A person judges on the screen: what is shown, kept and written."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from textual.pilot import Pilot

from llamagym_tui.app.app import SortingApp
from llamagym_tui.cli.sorting import ReadingThread
from llamagym_tui.demos.judged_items import judgements_path, own_prompt, read_judgements
from llamagym_tui.engine.sorter import BATCH, Sorter
from llamagym_tui.settings import RunConfig
from tests.screens.pictures import WIDE

ROOT = Path(__file__).parents[3]
ITEMS = [f"{kind} number {number}" for number in range(20) for kind in ("cup", "letter", "tin")]
ACTIONS = ["keep", "later", "bin"]


def states(texts: Any) -> torch.Tensor:
    kinds = [min(["cup", "letter", "tin"].index(text.split()[0]), 2) for text in texts]
    noise = torch.randn(len(texts), 6, generator=torch.Generator().manual_seed(len(texts)))
    return noise / 4 + 3 * torch.eye(6)[kinds]


def sorting_app(tmp_path: Path, *, reads_all: bool = True) -> SortingApp:
    """The app of a file; if it does not read all, its first batch alone."""
    sorter = Sorter(ITEMS, ACTIONS)
    path = tmp_path / "things.txt"
    reading = SimpleNamespace(
        path=path, actions=ACTIONS, prompt=own_prompt(ACTIONS), notice="", failure="", sorter=sorter
    )

    def states_of(texts: Any) -> torch.Tensor:
        if texts == ACTIONS:
            return states(["cup", "letter", "tin"])
        if not reads_all:
            sorter.stop()
        return states(texts)

    return SortingApp(reading, RunConfig(agent="", run_dir=""), lambda: sorter.read_all(states_of))


@pytest.fixture
def app(tmp_path: Path) -> SortingApp:
    return sorting_app(tmp_path)


async def judge_some(pilot: Pilot[None]) -> None:
    await pilot.press("n", "2", "3", "backspace", "3", "y")


async def test_judgements_are_on_disk_and_the_file_is_sorted(
    app: SortingApp, tmp_path: Path
) -> None:
    async with app.run_test(size=WIDE) as pilot:
        await judge_some(pilot)
        found, _ = read_judgements(judgements_path(tmp_path / "things.txt"), ITEMS, ACTIONS)
        assert [each.item for each in found] == ITEMS[:4]
        assert [each.label for each in found][:3] == [None, "later", "bin"]
        await pilot.press("ctrl+s")
    table = tmp_path / "sorted.tsv"
    sft = tmp_path / "things.sft.jsonl"
    assert app.outcome == [f"Written: {table}", f"Written: {sft}"]
    rows = table.read_text("utf-8").splitlines()
    assert len(rows) == 1 + len(ITEMS)
    assert sum(row.endswith("yes") for row in rows) == 4
    assert len(sft.read_text("utf-8").splitlines()) == 3


async def test_who_leaves_early_has_what_was_read_and_hears_how_much_is_missing(
    tmp_path: Path,
) -> None:
    app = sorting_app(tmp_path, reads_all=False)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("2", "ctrl+s", "y")
    rows = (tmp_path / "sorted.tsv").read_text("utf-8").splitlines()
    assert len(rows) == 1 + BATCH
    assert all(row.split("\t")[1] in ACTIONS for row in rows[1:])
    assert app.outcome[-1] == "28 of 60 items were not read, and are not in the table."


JUDGES_AND_IS_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.screens.demos.test_judging import sorting_app

async def judge():
    async with sorting_app(Path(sys.argv[1])).run_test() as pilot:
        await pilot.press("y", "n", "2")
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(judge())
"""


def test_a_program_that_is_killed_has_kept_every_judgement(tmp_path: Path) -> None:
    items = tmp_path / "things.txt"
    items.write_text("\n".join(ITEMS), "utf-8")
    words = (sys.executable, "-c", JUDGES_AND_IS_KILLED, str(tmp_path))
    assert subprocess.run(words, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    reading = ReadingThread(items, ",".join(ACTIONS), "", RunConfig(agent="", run_dir=""))
    assert reading.notice == "3 judgements of before count."
    reading.run()
    assert reading.sorter is not None
    assert [reading.sorter.items[each.item] for each in reading.sorter.judgements] == ITEMS[:3]
    first, second, third = reading.sorter.judgements
    assert first.is_right
    assert second.label is None
    assert third.label == 1
    assert reading.sorter.shown is not None, "the rest of the file was read"


def test_a_file_that_is_judged(snap_compare: Any, app: SortingApp) -> None:
    assert snap_compare(app, terminal_size=WIDE, run_before=judge_some)
