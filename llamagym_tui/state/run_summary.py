"""A past run in some lines: how long, how well, and how it ended.

It is kept in the run folder with the place in the events that it goes up to, and read on from there.
"""

import contextlib
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from llamagym_tui.config import RunConfig, Value, flat
from llamagym_tui.protocol import event_log, events
from llamagym_tui.returns import (
    MAX_GROUPS,
    RECENT,
    MeanReturn,
    Point,
    ReturnSeries,
    smoothing_window,
)
from llamagym_tui.run_store import EVENTS_FILE
from llamagym_tui.user_files import file_content, replace_file

SUMMARY_FILE = "summary.json"
VERSION = 5
"""Raised with every change that makes kept summaries wrong."""

Ending = Literal["finished", "failed", "open"]
"""How the last session ended; ``open``: by force, or not yet."""


class RunSummary(Struct, frozen=True, kw_only=True):
    version: int = VERSION
    offset: int = 0
    """Bytes of the events that it was made of."""
    baselines: dict[str, float] = field(default_factory=dict)
    return_unit: str = ""
    episodes: int = 0
    updates: int = 0
    played_s: float = 0.0
    """Seconds over all sessions, loading included."""
    session_s: float = 0.0
    """Seconds of the last session."""
    returns: ReturnSeries = field(default_factory=ReturnSeries)
    evaluation: events.EvaluationFinished | None = None
    """The last one."""
    changes: dict[str, Value] = field(default_factory=dict)
    """Settings that were changed live and hold at the end, by their dotted names."""
    ending: Ending = "open"

    @property
    def curve(self) -> list[Point]:
        """Mean return over episodes, smoothed as the playground's chart is."""
        return self.returns.trailing(smoothing_window(self.returns.episodes))

    @property
    def recent(self) -> MeanReturn | None:
        """Over the last `RECENT` episodes, as a run's end has it, rounded up to groups; None without an episode."""
        last, episodes = self.returns.trailing(RECENT)[-1:], min(RECENT, self.returns.episodes)
        return MeanReturn(last[0].mean_return, last[0].stderr, episodes) if last else None

    @property
    def mean_return(self) -> float | None:
        return self.recent and self.recent.mean


def summary_of(run_dir: Path) -> RunSummary:
    """The summary of a run, brought up to date and kept in its folder if that can be written.

    Raises:
        RunStoreError: the events cannot be read.
    """
    log = run_dir / EVENTS_FILE
    kept = _kept(run_dir)
    if kept.offset > (log.stat().st_size if log.exists() else 0):
        kept = RunSummary()  # the file was replaced by a shorter one
    summary = kept
    for logged in event_log.read_from(log, kept.offset):
        summary = replace(_after(summary, logged.event), offset=logged.end)
    if summary != kept:
        # A folder of someone else's is read all the same.
        with contextlib.suppress(OSError):
            replace_file(run_dir / SUMMARY_FILE, msgspec.json.encode(summary))
    return summary


def differences(
    first: RunConfig, second: RunConfig, changes: tuple[dict[str, Value], dict[str, Value]]
) -> dict[str, tuple[str, str]]:
    """Settings in which two runs differ, by their dotted names, as texts; the folder and resuming are left out.

    `changes` are those that were made live in each; shown as ``0.0005 → 0.0001``.
    """
    one, other = (
        {name: _shown(value, made, name) for name, value in flat(config).items()}
        for config, made in zip((first, second), changes, strict=True)
    )
    names = [name for name in one if name not in ("run_dir", "resume", "measured")]
    return {name: (one[name], other[name]) for name in names if one[name] != other[name]}


def _kept(run_dir: Path) -> RunSummary:
    try:
        kept = msgspec.json.decode(file_content(run_dir / SUMMARY_FILE), type=RunSummary)
    except (OSError, ValueError, RecursionError):
        return RunSummary()
    series = kept.returns
    is_sound = (
        series.group > 0
        and len(series.sums) == len(series.squares) <= MAX_GROUPS
        and kept.offset >= 0
    )
    return kept if kept.version == VERSION and is_sound else RunSummary()


def _after(summary: RunSummary, event: events.AnyEvent) -> RunSummary:
    restarted = event.at_s < summary.session_s
    spent = event.at_s if restarted else event.at_s - summary.session_s
    summary = replace(summary, played_s=summary.played_s + spent, session_s=event.at_s)
    match event:
        case events.RunStarted():
            known = {"baselines": event.baselines, "return_unit": event.return_unit}
            return replace(summary, **known, changes={}, ending="open", episodes=event.episodes)
        case events.EpisodesCounted():
            returns = summary.returns.counted(event.returns, event.episodes)
            return replace(summary, episodes=event.episodes, returns=returns)
        case events.UpdateFinished():
            return replace(summary, updates=event.update)
        case events.EvaluationFinished(seed=None):
            return replace(summary, evaluation=event)
        case events.WarmStartFinished() | events.RolledBack():
            return replace(summary, evaluation=None)  # it was of another policy
        case events.WarmStartEvaluated(after=after):
            return replace(summary, evaluation=after)
        case events.SettingsChanged():
            return replace(summary, changes={**summary.changes, **event.changes})
        case events.SessionFailed():
            return replace(summary, ending="failed")
        case events.RunFinished():
            return replace(summary, ending="finished")
    return summary


def _shown(value: Any, changes: dict[str, Value], name: str) -> str:
    if name in changes and changes[name] != value:
        return f"{_text(value)} → {_text(changes[name])}"
    return _text(value)


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
