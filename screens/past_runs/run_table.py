"""Past runs as a table: its columns, the text in each, and the orders in which it can stand. Draws nothing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.returns import Point, counted, signed
from llamagym_tui.run_store import RunInfo
from llamagym_tui.state.run_summary import RunSummary, summary_of

ENDINGS = {"finished": "finished", "failed": "failed", "open": "interrupted"}
"""How a run that is not running ended, for people."""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    info: RunInfo
    summary: RunSummary | None = None
    """None: its events have not been read yet, or cannot be."""
    fault: str = ""
    """Why its events cannot be read."""

    @property
    def key(self) -> str:
        """Its folder, which no other run has."""
        return str(self.info.run_dir)

    @cached_property
    def curve(self) -> list[Point]:
        """Mean return over episodes; empty: there is nothing to draw."""
        return self.summary.curve if self.summary else []

    @cached_property
    def mean(self) -> float | None:
        """Mean return at the end."""
        return self.summary.mean_return if self.summary else None

    @property
    def agent(self) -> str:
        """Its agent, a file by its name."""
        spec = self.info.config.agent
        return PurePath(spec).name if "/" in spec or "\\" in spec else spec

    @property
    def ending(self) -> str:
        """How it ended, for people."""
        if self.info.is_running:
            return "running"
        if self.summary is None:
            return "unreadable" if self.fault else "…"
        return ENDINGS[self.summary.ending]


@dataclass(frozen=True)
class Column:
    name: str
    title: str
    width: int
    """Cells, the gap before the next column not counted."""
    right: bool
    """Whether it is aligned to the right."""
    text: Callable[[RunRow], str]
    order: Callable[[RunRow], str | float]
    """What it is sorted by."""
    needs: int = 0
    """Cells that the table has at least where the column is shown."""


def _mean_text(row: RunRow) -> str:
    """At most seven cells up to a million, which is the column's width."""
    if (mean := row.mean) is None:
        return ""
    decimals = 3 if abs(mean) < 100 else 1 if abs(mean) < 10_000 else 0
    return signed(mean, decimals).replace(",", "")


def _count(row: RunRow, name: str) -> int:
    return int(getattr(row.summary, name)) if row.summary else 0


COLUMNS: tuple[Column, ...] = (
    Column(
        "when",
        "when",
        12,
        False,
        lambda row: f"{row.info.started_at:%d %b %H:%M}",
        lambda row: -row.info.started_at.timestamp(),
    ),
    Column("agent", "agent", 13, False, lambda row: row.agent, lambda row: row.agent.lower()),
    Column(
        "model",
        "model",
        22,
        False,
        lambda row: PurePath(row.info.config.model).name,
        lambda row: row.info.config.model.lower(),
        100,
    ),
    Column(
        "episodes",
        "episodes",
        9,
        True,
        lambda row: f"{_count(row, 'episodes'):,}" if row.summary else "",
        lambda row: -_count(row, "episodes"),
        64,
    ),
    Column(
        "updates",
        "updates",
        7,
        True,
        lambda row: f"{_count(row, 'updates'):,}" if row.summary else "",
        lambda row: -_count(row, "updates"),
        100,
    ),
    Column("return", "return", 7, True, _mean_text, lambda row: float("inf") if row.mean is None else -row.mean),
    Column("ending", "ended", 11, False, lambda row: row.ending, lambda row: row.ending, 64),
)
"""From left to right; the curve stands after the return and has what is left."""
GAP = 2
"""Cells between columns."""


def played_text(summary: RunSummary) -> str:
    """How much was played, for people."""
    episodes, updates = counted(summary.episodes, "episode"), counted(summary.updates, "update")
    return f"{episodes}, {updates}, {summary.played_s / 60:,.1f} min"


def columns_at(width: int) -> list[Column]:
    """The columns that a table of some cells has room for."""
    return [column for column in COLUMNS if width >= column.needs]


def in_order(rows: Iterable[RunRow], name: str, *, backwards: bool = False) -> list[RunRow]:
    """Rows by a column, the latest, longest and best first; equal ones by time."""
    by_time = sorted(rows, key=lambda row: -row.info.started_at.timestamp())
    order = next(column.order for column in COLUMNS if column.name == name)
    return sorted(by_time, key=order, reverse=backwards)


def read_row(row: RunRow) -> RunRow:
    """The row with a summary of its events, or with why they cannot be read."""
    try:
        return replace(row, summary=summary_of(row.info.run_dir), fault="")
    except LlamaGymError as error:
        return replace(row, summary=None, fault=str(error))
