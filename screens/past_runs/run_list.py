"""Past runs, a line each with the curve of mean return; one key replays the chosen one, another resumes it.

Lines stand at once, and are filled in as the events of each run are read in a thread.
"""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Resize
from textual.message import Message
from textual.style import Style
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.run_store import list_runs
from llamagym_tui.screens.past_runs.run_table import GAP, Column, RunRow, columns_at, in_order, read_row
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.screens.widgets.numbers import spark
from llamagym_tui.setup.branch import kept_updates

MARK, BRANCH = "●", "↳"
PAINT_S = 0.2
"""Seconds between two paintings while runs are read, at least: a painting takes as long as reading many of them."""
DIM = "$foreground 60%"
ENDING_STYLES = {"finished": "$success", "failed": "$error"}


class RunList(OptionList):
    """Past runs, the newest first unless sorted otherwise."""

    DEFAULT_CSS = own_styles(__file__)
    BINDING_GROUP_TITLE = "Runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Replay", id="runs.replay", tooltip="Watch the recorded run."),
        Binding(
            "r",
            "request('resume')",
            "Resume",
            id="runs.resume",
            tooltip="Go on from the run's checkpoint, with no limit.",
        ),
        Binding(
            "b", "request('branch')", "What if", id="runs.branch", tooltip="Another run from a checkpoint of this one."
        ),
    ]

    @dataclass
    class Requested(Message):
        row: RunRow
        what: Literal["replay", "resume", "branch"]

    class Changed(Message):
        """Rows, order, marks or the cursor are others now."""

    def __init__(self, *, at_most: int | None = None, run_is_open: bool = False, id: str | None = None) -> None:
        """The latest runs, or all; while one is open, none may be replayed or resumed."""
        super().__init__(id=id, markup=False)
        self._at_most = at_most
        self._run_is_open = run_is_open
        self.rows: dict[str, RunRow] = {}
        """By their folders, in the order shown."""
        self.marked: list[str] = []
        """Folders of the marked ones, the latest mark last."""
        self.sorted_by = "when"
        self.backwards = False
        self._words = ""  # in the names of all that are listed, in lower case
        self.loaded = False
        """Whether the runs have been looked for."""

    @property
    def chosen(self) -> RunRow | None:
        rows = list(self.rows.values())
        return rows[self.highlighted] if self.highlighted is not None and self.highlighted < len(rows) else None

    def on_mount(self) -> None:
        self.read()

    @work(exclusive=True, group="runs")
    async def read(self) -> None:
        """Look for runs once more, and read what is new of them."""
        infos = await asyncio.to_thread(list_runs)
        known = self.rows
        rows = [row for info in infos if self._words in (row := RunRow(info=info)).names][: self._at_most]
        self.loaded = True
        self._show([replace(row, summary=known[row.key].summary) if row.key in known else row for row in rows])
        while rows:
            read = await asyncio.to_thread(_read_some, rows)
            rows = rows[len(read) :]
            for row in read:
                self.rows[row.key] = row
                self._draw(row)
        if self.sorted_by != "when":
            self.sort(self.sorted_by, backwards=self.backwards)
        self.post_message(self.Changed())

    def sort(self, name: str, *, backwards: bool = False) -> None:
        """Put the runs into the order of a column; the cursor stays on its run."""
        self.sorted_by, self.backwards = name, backwards
        self._show(list(self.rows.values()))

    def filter(self, words: str) -> None:
        self._words = words.lower()
        self.read()

    def mark(self) -> None:
        """Mark the chosen run, or take its mark away; the oldest of three marks goes."""
        if (row := self.chosen) is None:
            return
        others = [key for key in self.marked if key != row.key]
        before, self.marked = self.marked, others if row.key in self.marked else [*others, row.key][-2:]
        for key in {*before, *self.marked} & self.rows.keys():
            self._draw(self.rows[key])
        self.post_message(self.Changed())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A run can be resumed from its checkpoint, and replayed unless it cannot be read."""
        row = self.chosen
        if self._run_is_open and action in ("request", "select"):
            return None
        if action == "request":
            there = row and (kept_updates(row.info.run_dir) if "branch" in parameters else row.info.has_checkpoint)
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

    @on(OptionList.OptionHighlighted)
    def follow_cursor(self, event: OptionList.OptionHighlighted) -> None:
        """Other keys may do something now."""
        event.stop()
        self.refresh_bindings()
        self.post_message(self.Changed())

    def on_resize(self, event: Resize) -> None:
        """Lines are laid out by width."""
        for row in self.rows.values():
            self._draw(row)

    def heading(self) -> Content:
        """The titles of the columns, the sorted one with an arrow; a click on one sorts."""
        cells: dict[str, Content] = {}
        for column in columns_at(self._width):
            arrow = ("▲" if self.backwards else "▼") if column.name == self.sorted_by else ""
            title = _fitted(column.name + arrow, column, "bold" if arrow else DIM)
            cells[column.name] = title.stylize(Style.from_meta({"sort": column.name}))
        return Content("  ") + _row(cells, Content.styled(f"{'curve':<{self._curve_width}}", DIM))

    def _show(self, rows: list[RunRow]) -> None:
        chosen = self.chosen
        self.rows = {row.key: row for row in in_order(rows, self.sorted_by, backwards=self.backwards)}
        self.set_options([Option(self._line(row), id=key) for key, row in self.rows.items()])
        keys = list(self.rows)
        self.highlighted = keys.index(chosen.key) if chosen and chosen.key in keys else (0 if keys else None)
        self.refresh_bindings()
        self.post_message(self.Changed())

    def _draw(self, row: RunRow) -> None:
        if row.key in self.rows:
            self.replace_option_prompt(row.key, self._line(row))

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width or self.app.size.width

    @property
    def _curve_width(self) -> int:
        columns = columns_at(self._width)
        return max(4, self._width - 2 - sum(column.width + GAP for column in columns))

    def _line(self, row: RunRow) -> Content:
        cells = {column.name: _cell(row, column) for column in columns_at(self._width)}
        width = self._curve_width
        bars = ""
        if points := row.curve:
            values = [point.mean_return for point in points]
            bars = spark(points, width, min(values), max(values))
        curve = Content.styled(f"{bars:<{width}}", "$primary")
        branch = BRANCH if row.info.config.parent else " "
        mark = Content.styled(f"{MARK if row.key in self.marked else branch} ", "bold $accent")
        return mark + _row(cells, curve)


class RunHeading(Static):
    """The titles of a list's columns; a click sorts by one, and once more the other way."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "RunHeading { height: 1; text-wrap: nowrap; }"

    def __init__(self, runs: RunList) -> None:
        super().__init__(id="runs-heading", markup=False)
        self._runs = runs

    def on_click(self, event: Click) -> None:
        if column := event.style.meta.get("sort"):
            self._runs.sort(column, backwards=column == self._runs.sorted_by and not self._runs.backwards)


def _read_some(rows: list[RunRow]) -> list[RunRow]:
    """As many rows as are read in `PAINT_S`, one at least."""
    began, read = time.monotonic(), list[RunRow]()
    while len(read) < len(rows) and (not read or time.monotonic() - began < PAINT_S):
        read.append(read_row(rows[len(read)]))
    return read


def _row(cells: dict[str, Content], curve: Content) -> Content:
    """Cells by their columns, with the curve after the return and its unit."""
    last = "in" if "in" in cells else "return"
    placed = [part for name, cell in cells.items() for part in ((cell, curve) if name == last else (cell,))]
    return Content(" " * GAP).join(placed)


def _cell(row: RunRow, column: Column) -> Content:
    style = {"ended": ENDING_STYLES.get(row.ending, DIM), "when": DIM, "in": DIM, "return": "bold"}.get(column.name, "")
    return _fitted(one_line(column.text(row)), column, style)


def _fitted(text: str, column: Column, style: str) -> Content:
    """A text in the cells of its column."""
    cut = Content.styled(text, style).truncate(column.width, ellipsis=True)
    room = column.width - cut.cell_length
    return cut.pad_left(room) if column.right else cut.pad_right(room)
