"""Past runs, a line each with the curve of mean return; one key replays the chosen one, another resumes it.

Lines stand at once, and are filled in as the events of each run are read in a thread.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

from textual import on, work
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList

from llamagym_tui.run_store import list_runs
from llamagym_tui.screens.past_runs.run_table import COLUMNS, RunRow, read_row, short_return
from llamagym_tui.screens.widgets.table_list import Column, TableList
from llamagym_tui.setup.branch import kept_updates

MARK = "●"
"""The mark of a run that is marked to be compared."""
BRANCH = "↳"
"""The mark of a branch of another run."""
BEST = "★"
"""Stands at the best of what is listed of a game."""
PAINT_S = 0.2
"""Seconds between two paintings while runs are read, at least: a painting takes as long as reading many of them."""
ENDING_STYLES = {"finished": "$success", "failed": "$error"}


class RunList(TableList[RunRow]):
    """Past runs, the newest first unless sorted otherwise."""

    COLUMNS = COLUMNS
    BINDING_GROUP_TITLE = "Runs"
    BINDINGS = [
        Binding("enter", "select", "Replay", tooltip="Watch the recorded run.", id="runs.replay"),
        Binding(
            "r",
            "request('resume')",
            "Resume",
            tooltip="Go on from the run's checkpoint, with no limit.",
            id="runs.resume",
        ),
        Binding(
            "b",
            "request('branch')",
            "What if",
            tooltip="Another run from a checkpoint of this one.",
            id="runs.branch",
        ),
    ]

    @dataclass
    class Requested(Message):
        row: RunRow
        what: Literal["replay", "resume", "branch"]

    def __init__(
        self, *, at_most: int | None = None, run_is_open: bool = False, id: str | None = None
    ) -> None:
        """The latest runs, or all; while one is open, none may be replayed or resumed."""
        super().__init__(id=id)
        self._at_most = at_most
        self._run_is_open = run_is_open
        self.marked: list[str] = []
        """Folders of the marked ones, the latest mark last."""
        self._best: dict[str, float] = {}
        """The best of all that are listed, by their games."""
        self._words = ""  # in the names of all that are listed, in lower case
        self.loaded = False
        """Whether the runs have been looked for."""

    @work(exclusive=True, group="runs")
    async def read(self) -> None:
        """Look for runs once more, and read what is new of them."""
        infos = await asyncio.to_thread(list_runs)
        known = {row.key: row.summary for row in self.rows}
        rows = [RunRow(info=info, summary=known.get(str(info.run_dir))) for info in infos]
        rows = [row for row in rows if self._words in row.names][: self._at_most]
        self.loaded = True
        self.show(rows)
        read = 0
        while read < len(rows):
            some = await asyncio.to_thread(_read_some, rows[read:])
            rows[read : read + len(some)] = some
            read += len(some)
            self.show(rows)

    def filter(self, words: str) -> None:
        self._words = words.lower()
        self.read()

    def mark(self) -> None:
        """Mark the chosen run, or take its mark away."""
        if (row := self.chosen) is None:
            return
        others = [key for key in self.marked if key != row.key]
        self.marked = others if row.key in self.marked else [*others, row.key]
        self.show_again()

    def mark_all(self) -> None:
        """Mark all that are listed, too; where they are marked, take all marks away."""
        listed = [row.key for row in self.rows]
        is_done = {*listed} <= {*self.marked}
        self.marked = [] if is_done else [*dict.fromkeys([*self.marked, *listed])]
        self.show_again()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A run can be resumed from its checkpoint, and replayed unless it cannot be read."""
        row = self.chosen
        if self._run_is_open and action in ("request", "select"):
            return None
        if action == "request":
            there = row and (
                kept_updates(row.info.run_dir)
                if "branch" in parameters
                else row.info.has_checkpoint and not row.info.is_running
            )
            return True if there else None
        if action == "select":
            return True if row is not None and not row.fault else None
        return True

    def action_request(self, what: Literal["resume", "branch"]) -> None:
        if (row := self.chosen) is not None:
            self.post_message(self.Requested(row, what))

    @on(OptionList.OptionSelected)
    def replay(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if (row := self.chosen) is not None and not row.fault and not self._run_is_open:
            self.post_message(self.Requested(row, "replay"))

    def ordered(self, rows: list[RunRow]) -> list[RunRow]:
        """In the chosen order; the best of each game are known from then on."""
        self._best = {}
        for row in rows:
            if row.at_least is not None:
                self._best[row.game] = max(row.at_least, self._best.get(row.game, row.at_least))
        return super().ordered(rows)

    def key(self, row: RunRow) -> str:
        return row.key

    def mark_of(self, row: RunRow) -> str:
        if row.key in self.marked:
            return MARK
        return BRANCH if row.info.config.parent else ""

    def cell(self, row: RunRow, column: Column[RunRow], width: int) -> Content:
        has_best = row.at_least is not None and self._best.get(row.game) == row.at_least
        if column.title == "at least" and has_best:
            return Content.assemble((f"{BEST} ", "$accent"), (short_return(row.at_least), "bold"))
        if column.title == "ended" and row.ending in ENDING_STYLES:
            return Content.styled(row.ending, ENDING_STYLES[row.ending])
        return super().cell(row, column, width)


def _read_some(rows: list[RunRow]) -> list[RunRow]:
    """As many rows as are read in `PAINT_S`, one at least."""
    began, read = time.monotonic(), list[RunRow]()
    while len(read) < len(rows) and (not read or time.monotonic() - began < PAINT_S):
        read.append(read_row(rows[len(read)]))
    return read
