"""A person judges on the screen: what is shown, kept and written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from textual.pilot import Pilot

from llamagym_tui.app.app import SortingApp
from llamagym_tui.demos.judged_items import judgements_path, own_prompt, read_judgements
from llamagym_tui.engine.sorter import Sorter
from llamagym_tui.settings import RunConfig
from tests.screens.pictures import WIDE

ITEMS = [f"{kind} number {number}" for number in range(20) for kind in ("cup", "letter", "tin")]
ACTIONS = ["keep", "later", "bin"]


def states(texts: Any) -> torch.Tensor:
    kinds = [min(["cup", "letter", "tin"].index(text.split()[0]), 2) for text in texts]
    noise = torch.randn(len(texts), 6, generator=torch.Generator().manual_seed(len(texts)))
    return noise / 4 + 3 * torch.eye(6)[kinds]


@pytest.fixture
def app(tmp_path: Path) -> SortingApp:
    sorter = Sorter(ITEMS, ACTIONS)
    path = tmp_path / "things.txt"
    reading = SimpleNamespace(
        path=path, actions=ACTIONS, prompt=own_prompt(ACTIONS), notice="", failure="", sorter=sorter
    )

    def read() -> None:
        names = dict(zip(ACTIONS, states(["cup", "letter", "tin"]), strict=True))
        sorter.read_all(
            lambda texts: (
                torch.stack([names[text] for text in texts]) if texts == ACTIONS else states(texts)
            )
        )

    return SortingApp(reading, RunConfig(agent="", run_dir=""), read)


async def judge_some(pilot: Pilot[None]) -> None:
    await pilot.press("n", "2", "3", "u", "3", "y")


async def test_judgements_are_on_disk_and_the_file_is_sorted(
    app: SortingApp, tmp_path: Path
) -> None:
    async with app.run_test(size=WIDE) as pilot:
        await judge_some(pilot)
        found, _ = read_judgements(judgements_path(tmp_path / "things.txt"), ITEMS, ACTIONS)
        assert [each.item for each in found] == ITEMS[:4]
        assert [each.label for each in found][:3] == [None, "later", "bin"]
        await pilot.press("s")
    table, sft = app.written
    rows = table.read_text("utf-8").splitlines()
    assert len(rows) == 1 + len(ITEMS)
    assert sum(row.endswith("yes") for row in rows) == 4
    assert len(sft.read_text("utf-8").splitlines()) == 3


def test_a_file_that_is_judged(snap_compare: Any, app: SortingApp) -> None:
    assert snap_compare(app, terminal_size=WIDE, run_before=judge_some)
