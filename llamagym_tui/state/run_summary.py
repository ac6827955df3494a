"""A past run in a few figures: how long it was, how well it played, and how it ended.

The summary is kept in the run folder, and is made again once the run's log has grown.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from llamagym_tui.errors import RunStoreError
from llamagym_tui.protocol import events
from llamagym_tui.runs.run_store import EVENTS_FILE, SUMMARY_FILE, read_config
from llamagym_tui.settings import RunConfig, Value, flat
from llamagym_tui.state.history import History
from llamagym_tui.state.returns import (
    RECENT,
    CurvePoint,
    MeanReturn,
    ReturnSeries,
    smoothing_window,
)
from llamagym_tui.user_files import file_content, replace_file

VERSION = 8
"""Version of the form of a summary; it goes up with every change that makes kept summaries wrong."""

Ending = Literal["finished", "failed", "open"]
"""The end of the last session; ``open`` if it was killed or has not ended."""


class RunSummary(Struct, frozen=True, kw_only=True):
    """A row in a list of runs."""

    version: int = VERSION
    size: int = 0
    """Bytes of the log that the summary was made from."""
    baselines: dict[str, float] = field(default_factory=dict)
    return_unit: str = ""
    episodes: int = 0
    updates: int = 0
    played_s: float = 0.0
    """Seconds of all sessions, the loading of the model included."""
    returns: ReturnSeries = field(default_factory=ReturnSeries)
    evaluation: events.EvaluationFinished | None = None
    """The last evaluation of the present policy, if there was one."""
    changes: dict[str, Value] = field(default_factory=dict)
    """Values of the settings that were changed live and still hold at the end, by their dotted names."""
    ending: Ending = "open"

    @property
    def curve(self) -> list[CurvePoint]:
        """The mean return over the episodes, smoothed as in the playground's chart."""
        return self.returns.trailing(smoothing_window(self.returns.episodes))

    @property
    def recent(self) -> MeanReturn | None:
        """The mean return of the last `RECENT` episodes, rounded up to groups; None if there are no episodes."""
        curve = self.returns.trailing(RECENT)
        if not curve:
            return None
        last = curve[-1]
        return MeanReturn(last.mean_return, last.stderr, min(RECENT, self.returns.episodes))


def summary_of(run_dir: Path) -> RunSummary:
    """The summary of a run, kept in its folder if the folder can be written.

    Raises:
        RunStoreError: the run's settings or events cannot be read.
    """
    log = run_dir / EVENTS_FILE
    kept = _kept(run_dir)
    if kept is not None and log.exists() and kept.size == log.stat().st_size:
        return kept
    history = History(run_dir, read_config(run_dir))
    while not history.complete:
        history.read_on()
    if history.fault:
        raise RunStoreError(history.fault)
    summary = summarised(history)
    # A folder that we must not write can be read all the same.
    with contextlib.suppress(OSError):
        replace_file(run_dir / SUMMARY_FILE, msgspec.json.encode(summary))
    return summary


def summarised(history: History) -> RunSummary:
    """The summary of a history."""
    state = history.state
    newest = state.evaluations[-1] if state.evaluations else None
    ending: Ending = "open"
    if state.failure:
        ending = "failed"
    elif state.finished is not None:
        ending = "finished"
    return RunSummary(
        size=history.size,
        baselines=state.run.baselines if state.run else {},
        return_unit=state.return_unit,
        episodes=state.episodes,
        updates=state.updates,
        played_s=history.played_s,
        returns=state.returns,
        evaluation=newest if newest is not None and not newest.outdated else None,
        changes=state.settings,
        ending=ending,
    )


def differences(
    configs: Sequence[RunConfig], changes: Sequence[dict[str, Value]]
) -> dict[str, tuple[str, ...]]:
    """The settings in which runs differ, by their dotted names, each with its value in all of them as text.

    The folder, whether a run was resumed, and the reasons of measured settings are left out.

    Args:
        configs: of two runs or more; of one there are no differences.
        changes: values that were set live in each run; these are shown as ``0.0005 → 0.0001``.
    """
    texts = [_setting_texts(*run) for run in zip(configs, changes, strict=True)]
    values = {name: tuple(each[name] for each in texts) for name in texts[0]}
    return {
        name: of_runs
        for name, of_runs in values.items()
        if name not in ("run_dir", "resume", "measured") and len({*of_runs}) > 1
    }


def _setting_texts(config: RunConfig, changes: dict[str, Value]) -> dict[str, str]:
    """All settings of a run as texts, by their dotted names."""
    texts = {}
    for name, value in flat(config).items():
        texts[name] = _text(value)
        if name in changes and changes[name] != value:
            texts[name] = f"{_text(value)} → {_text(changes[name])}"
    return texts


def _kept(run_dir: Path) -> RunSummary | None:
    """The summary that is kept in a run folder, if it is sound."""
    try:
        kept = msgspec.json.decode(file_content(run_dir / SUMMARY_FILE), type=RunSummary)
    except (OSError, ValueError, RecursionError):
        return None
    return kept if kept.version == VERSION else None


def _text(value: Any) -> str:
    """The value of a setting, for people."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
