"""Past runs as a table: its columns, the text in each, and the orders in which it can stand. Draws nothing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from operator import attrgetter
from pathlib import PurePath

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.returns import RECENT, CurvePoint, counted, margin, signed, smoothing_window
from llamagym_tui.run_store import RunInfo
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.table_list import Column
from llamagym_tui.state.prompts import words
from llamagym_tui.state.run_summary import RunSummary, differences, summary_of

FEWEST = 20
"""Episodes from which on an interval of their mean return says something."""

ENDINGS = {"finished": "finished", "failed": "failed", "open": "interrupted"}
"""How a run that is not running ended, for people."""
OF_A_SEED = ("seed", "episodes", "minutes")
"""Settings in which runs of one group of seeds may differ."""


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

    @property
    def known(self) -> RunSummary:
        """Its summary; one of a run that has not begun, where there is none."""
        return self.summary or RunSummary()

    @cached_property
    def curve(self) -> list[CurvePoint]:
        """Mean return over episodes; empty: there is nothing to draw."""
        return self.known.curve

    def smoothed(self, by: float) -> list[CurvePoint]:
        """The curve, each point the mean of so many times more episodes, at least of one group of its series."""
        return self.known.returns.trailing(self.window(by))

    def window(self, by: float) -> int:
        """Of how many episodes a point of that curve is the mean, at most."""
        returns = self.known.returns
        return max(returns.group, round(by * smoothing_window(returns.episodes)))

    @cached_property
    def mean(self) -> float | None:
        return self.known.mean_return

    @cached_property
    def at_least(self) -> float | None:
        """The highest mean return that the run has surely had: the lower end of a 95 % interval.

        It is over `RECENT` episodes. The highest point of the curve itself is mostly chance.
        None: there are too few episodes.
        """
        if self.known.returns.episodes < FEWEST:
            return None
        points = self.known.returns.trailing(RECENT)
        return max(point.mean_return - margin(point.stderr) for point in points)

    @property
    def names(self) -> str:
        """All that it goes by, in lower case."""
        config = self.info.config
        return f"{self.info.about} {config.agent} {config.model} {self.key} {config.origin}".lower()

    @property
    def agent(self) -> str:
        """Its agent, a file by its name."""
        spec = self.info.config.agent
        return PurePath(spec).name if "/" in spec or "\\" in spec else spec

    @property
    def game(self) -> str:
        """What is played, with what was set of its environment: returns of one game can be compared."""
        env = ", ".join(f"{name}={value}" for name, value in sorted(self.info.config.env.items()))
        return f"{self.agent} ({env})" if env else self.agent

    @property
    def ending(self) -> str:
        if self.info.is_running:
            return "running"
        if self.summary is None:
            return "unreadable" if self.fault else "…"
        return ENDINGS[self.summary.ending]


def short_return(mean: float | None) -> str:
    """At most seven cells up to a million, which is the width of its columns."""
    if mean is None:
        return ""
    if abs(mean) < 100:
        decimals = 3
    elif abs(mean) < 10_000:
        decimals = 1
    else:
        decimals = 0
    return signed(mean, decimals).replace(",", "")


def _prompt_text(row: RunRow) -> str:
    """The first words of the prompt that the run began with; empty: the agent's own."""
    prompt = row.info.config.system_prompt
    return words(prompt, most=26) if prompt else ""


def _counts(name: str, width: int, needs: int) -> Column[RunRow]:
    """A column of a count in the summary."""

    def text(row: RunRow) -> str:
        return f"{getattr(row.summary, name):,}" if row.summary else ""

    return Column(name, width, text, attrgetter(f"known.{name}"), True, needs=needs, right=True)


COLUMNS: tuple[Column[RunRow], ...] = (
    Column(
        "when",
        12,
        lambda row: f"{row.info.started_at:%d %b %H:%M}",
        lambda row: row.info.started_at,
        True,
        style=ASIDE,
    ),
    Column(
        "agent",
        18,
        lambda row: ": ".join(filter(None, (row.agent, row.info.name))),
        lambda row: row.agent.lower(),
    ),
    Column(
        "model",
        22,
        lambda row: PurePath(row.info.config.model).name,
        lambda row: row.info.config.model.lower(),
        needs=100,
    ),
    Column(
        "tags",
        14,
        lambda row: " ".join(row.info.tags),
        attrgetter("info.tags"),
        True,
        needs=130,
        style="$accent",
    ),
    Column("prompt", 28, _prompt_text, _prompt_text, needs=172),
    _counts("episodes", 9, 64),
    _counts("updates", 7, 142),
    Column(
        "return",
        7,
        lambda row: short_return(row.mean),
        lambda row: -inf if row.mean is None else row.mean,
        True,
        right=True,
        style="bold",
    ),
    Column(
        "at least",
        9,
        lambda row: short_return(row.at_least),
        lambda row: -inf if row.at_least is None else row.at_least,
        True,
        needs=90,
        right=True,
    ),
    Column(
        "in",
        12,
        attrgetter("known.return_unit"),
        attrgetter("known.return_unit"),
        needs=187,
        style=ASIDE,
    ),
    Column("curve", 0, lambda row: [point.mean_return for point in row.curve], style="$primary"),
    Column("ended", 11, lambda row: row.ending, lambda row: row.ending, needs=64, style=ASIDE),
)
"""From left to right; the curve has what is left."""


def played_text(summary: RunSummary) -> str:
    episodes, updates = counted(summary.episodes, "episode"), counted(summary.updates, "update")
    return f"{episodes}, {updates}, {summary.played_s / 60:,.1f} min"


def seeds_of(row: RunRow, rows: Iterable[RunRow]) -> list[RunRow]:
    """A run that was read and those that differ from it in seed, folder and limits only, by their seeds; of runs with
    one seed the first. What the first batch has decided in both may differ, too."""
    one, found = row.info.config, {row.info.config.seed: row}
    for other in rows:
        if row.summary is None or other.summary is None or not (row.curve and other.curve):
            continue
        two = other.info.config
        may = {*OF_A_SEED, "measured_threads", *(one.measured.keys() & two.measured)}
        if differences([one, two], [row.summary.changes, other.summary.changes]).keys() <= may:
            found.setdefault(two.seed, other)
    return [found[seed] for seed in sorted(found)]


def read_row(row: RunRow) -> RunRow:
    """The row with a summary of its events, or with why they cannot be read."""
    try:
        return replace(row, summary=summary_of(row.info.run_dir), fault="")
    except LlamaGymError as error:
        return replace(row, summary=None, fault=str(error))
