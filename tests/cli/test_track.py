"""What a tracker gets of a run, past or under way, and that a tracker that breaks is a notice."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from llamagym_tui import errors
from llamagym_tui.cli import track
from llamagym_tui.cli.main import app
from llamagym_tui.config import flat
from llamagym_tui.protocol.events import (
    AnyEvent,
    EvaluationFinished,
    MatchPlayed,
    PromptChanged,
    RunStarted,
    UpdateFinished,
)
from llamagym_tui.run_store import EVENTS_FILE, TRACKER_LOG_FILE, read_config
from tests import fakes
from tests.recorded_run import record


def evaluated(mean: float, **more: Any) -> EvaluationFinished:
    figures = {
        "episodes": 200,
        "greedy": True,
        "return_stderr": 0.07,
        "parse_failure_rate": 0.0,
        "elapsed_s": 1.0,
    }
    return EvaluationFinished(mean_return=mean, **figures, **more)


def updated(update: int, episodes: int, kl: float) -> UpdateFinished:
    stats = next(event.stats for event in fakes.demo_run() if isinstance(event, UpdateFinished))
    return UpdateFinished(
        update=update, episodes=episodes, stats=replace(stats, approx_kl=kl, value_loss=math.nan)
    )


def a_run() -> Iterator[AnyEvent]:
    """Two updates, after 4 and 8 episodes; then another prompt, a hand, and an evaluation."""
    yield fakes.run_started()
    yield replace(fakes.counted([1.0, -1.0, -1.0, -1.0], 4), env_steps=6)
    yield updated(1, 4, 0.25)
    yield replace(fakes.counted([1.0, 1.0, 1.0, 1.0], 8), at_s=9.0, env_steps=11)
    yield updated(2, 8, 0.5)
    yield PromptChanged(prompt_version=2, system_prompt="Hit <b>below</b> 13.")
    yield from fakes.hand(9, [("Your total: 20.", '{"action": 0}', "json")], 1.0)
    yield evaluated(-0.25)
    yield MatchPlayed(seed=3, returns=[], played=evaluated(0.75))  # against a person


class Kept:
    """A tracker that keeps what it gets."""

    def __init__(self) -> None:
        self.points: list[track.Point] = []
        self.place = "its place"
        self.is_closed = False

    def add(self, point: track.Point) -> None:
        self.points.append(point)

    def close(self) -> None:
        self.is_closed = True

    def figures(self, name: str) -> list[tuple[int, int, float]]:
        """Update, turns and value of each point that has a figure."""
        return [
            (each.update, each.turns, each.figures[name])
            for each in self.points
            if name in each.figures
        ]

    def texts(self, name: str) -> list[str]:
        return [each.texts[name] for each in self.points if name in each.texts]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    sink = Kept()
    monkeypatch.setattr(track, "require_library", lambda *names: None)
    monkeypatch.setitem(track.SINKS, "tensorboard", lambda run_dir: sink)
    return sink


def test_a_tracker_gets_the_figures_by_turns_and_update_the_prompts_the_changes_and_a_conversation(
    tmp_path: Path, kept: Kept
) -> None:
    sentence = track.track(record(tmp_path / "one", a_run()), "tensorboard")
    assert sentence == f"{len(kept.points)} points of one are in its place"
    assert kept.figures("update/approx_kl") == [(1, 6, 0.25), (2, 11, 0.5)]
    assert kept.figures("play/mean_return") == [(0, 6, -0.5), (1, 11, 0.25)]  # -2 of 4, and 2 of 8
    assert kept.figures("evaluation/greedy_mean_return") == [(2, 11, -0.25)]
    assert kept.figures("evaluation/greedy_stderr") == [(2, 11, 0.07)]
    assert [text.split("\n")[0] for text in kept.texts("prompt")] == ["v1", "v2"]
    assert kept.texts("prompt")[1] == "v2\n\n    Hit <b>below</b> 13."
    assert kept.texts("marks") == ["update 2: prompt v2 “Hit <b>below</b> 13.”"]
    assert kept.texts("conversation") == [
        "episode 9\n\n    prompt v1, return 1\n    env: Your total: 20.\n"
        '    agent: {"action": 0}\n    action: stick, reward 1'
    ]
    assert kept.is_closed


def test_what_a_resumed_run_plays_again_is_exported_once(tmp_path: Path, kept: Kept) -> None:
    resumed = replace(next(a_run()), episodes=4, updates=1)
    assert isinstance(resumed, RunStarted)
    again = [replace(fakes.counted([-1.0] * 4, 8), env_steps=12), updated(2, 8, 0.125)]
    track.track(record(tmp_path / "one", [*a_run(), resumed, *again]), "tensorboard")
    assert kept.figures("update/approx_kl") == [(1, 6, 0.25), (2, 12, 0.125)]


def test_a_run_under_way_is_followed_to_its_end_and_a_line_that_is_not_whole_is_waited_for(
    tmp_path: Path, kept: Kept
) -> None:
    run_dir = record(tmp_path / "one", [])
    log, seen = run_dir / EVENTS_FILE, []
    started, line = (
        msgspec.json.encode(each) + b"\n" for each in (fakes.run_started(), updated(1, 4, 0.25))
    )

    def wait(seconds: float) -> bool:
        seen.append(len(kept.points))
        more = [started, line[:30], line[30:], b""][len(seen) - 1]
        with log.open("ab") as file:
            file.write(more)
        return len(seen) == 4

    track.track(run_dir, "tensorboard", wait)
    assert seen == [0, 1, 1, 2]


def test_what_is_not_installed_is_one_sentence_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    run_dir = record(tmp_path / "one", a_run())
    sentence = "llamagym-tui: wandb is not installed: pip install 'llamagym-tui[wandb]'.\n"
    for words in (
        ["track", str(run_dir), "--to", "wandb"],
        ["train", "blackjack", "--track", "wandb"],
    ):
        result = CliRunner().invoke(app, words)
        assert (result.exit_code, result.stderr) == (2, sentence)


class Library:
    """A tracker's library, which keeps how it is called and what it is given."""

    Html = Markdown = staticmethod(str)

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.rows: list[dict[str, Any]] = []

    def init(self, *names: str, **settings: Any) -> Library:
        self.calls.append((*names, settings))
        return self

    def define_metric(self, name: str, **more: Any) -> None:
        self.calls.append((name, more))

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def finish(self) -> None:
        self.calls.append(("ended", len(self.rows)))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    fake = Library()
    monkeypatch.setattr(track, "import_module", lambda name: fake)
    monkeypatch.setattr(errors, "find_spec", lambda name: name)
    return fake


def test_wandb_is_offline_unless_the_user_has_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Library
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    environment: dict[str, str] = {}
    monkeypatch.setattr(track.os, "environ", environment)
    run_dir = record(tmp_path / "one", a_run())
    sentence = track.track(run_dir, "wandb")
    assert environment == {"WANDB_MODE": "offline"}
    rows = library.rows
    assert sentence == (
        f"{len(rows)} points of one are in {run_dir / 'wandb'}; `wandb sync` uploads them"
    )
    config = {"config": flat(read_config(run_dir))}
    assert library.calls == [
        ({"project": "llamagym-tui", "name": "one", "dir": str(run_dir), **config},),
        ("*", {"step_metric": "turns"}),
        ("ended", len(rows)),
    ]
    assert rows[0]["prompt"].startswith("<pre>v1\n")
    assert any("&lt;b&gt;below" in row.get("prompt", "") for row in rows)
    environment["WANDB_MODE"] = "online"
    track.track(run_dir, "wandb")
    assert environment == {"WANDB_MODE": "online"}


def test_trackio_gets_a_row_of_figures_and_counts_for_each_point_and_nothing_of_its_own(
    tmp_path: Path, library: Library
) -> None:
    run_dir = record(tmp_path / "one", a_run())
    sentence = track.track(run_dir, "trackio")
    rows = library.rows
    shown = "Trackio; open it with `trackio show --project llamagym-tui`"
    assert sentence == f"{len(rows)} points of one are in {shown}"
    config = {"name": "one", "config": flat(read_config(run_dir)), "embed": False}
    off = {"auto_log_gpu": False, "auto_log_cpu": False}
    assert library.calls == [("llamagym-tui", config | off), ("ended", len(rows))]
    assert rows[2] == {
        "update": 1,
        "turns": 6,
        "episodes": 4,
        "seconds": 0.0,
        **{name: value for name, value in rows[2].items() if name.startswith("update/")},
    }
    assert rows[2]["update/approx_kl"] == 0.25
    assert "update/value_loss" not in rows[2]  # not a number, here
    assert rows[0]["prompt"].startswith("v1\n\n    ")


def test_play_and_conversations_are_points_only_so_often(tmp_path: Path, kept: Kept) -> None:
    played = [replace(fakes.counted([1.0], 1), at_s=at_s) for at_s in (1.0, 5.9, 6.0, 12.0)]
    turns = [("Your total: 20.", "Hm.", "failed")]
    hands = [
        replace(event, at_s=at_s)
        for at_s in (10.0, 39.9, 40.0)
        for event in fakes.hand(int(at_s), turns, 1.0)
    ]
    track.track(record(tmp_path / "one", [fakes.run_started(), *played, *hands]), "tensorboard")
    at_s = {name: [each.at_s for each in kept.points if name in (*each.figures, *each.texts)]
            for name in ("play/mean_return", "conversation")}  # fmt: skip
    assert at_s == {"play/mean_return": [1.0, 6.0, 12.0], "conversation": [10.0, 40.0]}
    assert kept.texts("conversation")[0].endswith(
        "agent: Hm.\n    action: none, so stick, reward 1"
    )


def test_a_follower_is_a_process_beside_that_is_waited_for_at_most_20_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    class Process:
        __class_getitem__ = classmethod(lambda cls, of: cls)

        def __init__(self, words: list[str], **more: Any) -> None:
            calls.append((words, {name: value for name, value in more.items() if name != "stderr"}))
            more["stderr"].write(b"said")

        def wait(self) -> int:
            return 0

        def communicate(self, timeout: float) -> None:
            calls.append(timeout)
            raise subprocess.TimeoutExpired("track", timeout)

    monkeypatch.setattr(track.subprocess, "Popen", Process)
    with track.following(tmp_path / "one", "wandb", pytest.fail):
        pass
    assert (tmp_path / "one" / "tracker.log").read_text() == "said"
    words = ["-m", "llamagym_tui", "track", str(tmp_path / "one"), "--to", "wandb", "--follow"]
    ways = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "start_new_session": True}
    assert calls == [([sys.executable, *words], ways), 20.0]


def test_a_tracker_that_breaks_is_one_notice_and_nothing_else(tmp_path: Path) -> None:
    notices: list[str] = []
    run_dir = record(tmp_path / "one", [fakes.run_started()])
    (run_dir / EVENTS_FILE).write_text("no event\n")
    with track.following(run_dir, "tensorboard", notices.append):
        until = time.monotonic() + 60
        while not notices and time.monotonic() < until:
            time.sleep(0.05)
    assert notices == [
        f"The tracker has ended, and the run goes on without it; its log is {run_dir / TRACKER_LOG_FILE}."
    ]
    assert (
        "no event" in (run_dir / TRACKER_LOG_FILE).read_text()
        or "installed" in (run_dir / TRACKER_LOG_FILE).read_text()
    )


def test_a_tracker_that_cannot_be_started_is_one_notice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    notices: list[str] = []
    with track.following(tmp_path / "file" / "run", "tensorboard", notices.append):
        pass
    assert len(notices) == 1
    assert "the run goes on without it" in notices[0]


def test_nobody_wants_a_tracker_so_there_is_none(tmp_path: Path) -> None:
    before = threading.active_count()
    with track.following(tmp_path / "run", None, pytest.fail):
        assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


def test_tensorboards_own_reader_has_the_figures_and_a_second_export_replaces_the_first(
    tmp_path: Path,
) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard"
    )
    run_dir = record(tmp_path / "one", a_run())
    for _ in range(2):
        result = CliRunner().invoke(app, ["track", str(run_dir), "--to", "tensorboard"])
        assert result.exit_code == 0, result.output
    found = reader.EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"tensors": 0})
    found.Reload()

    def values(tag: str) -> list[tuple[int, float]]:
        return [(each.step, each.tensor_proto.float_val[0]) for each in found.Tensors(tag)]

    assert values("by update/approx_kl") == [(1, 0.25), (2, 0.5)]
    assert values("by turns/approx_kl") == [(6, 0.25), (11, 0.5)]
    assert values("play/mean_return") == [(6, -0.5), (11, 0.25)]
    (conversation,) = found.Tensors("conversation")
    assert b"Your total: 20." in conversation.tensor_proto.string_val[0]


def test_a_follower_exports_what_comes_until_the_run_ends(tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard"
    )
    run_dir = tmp_path / "one"
    with track.following(run_dir, "tensorboard", pytest.fail):
        record(run_dir, a_run())
    found = reader.EventAccumulator(str(run_dir / "tensorboard"))
    found.Reload()
    assert [each.step for each in found.Tensors("by update/approx_kl")] == [1, 2]


@pytest.mark.slow  # needs the extras, and writes by their own libraries
@pytest.mark.parametrize("tracker", ["trackio", "wandb"])
def test_the_real_libraries_keep_a_run_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str
) -> None:
    pytest.importorskip(tracker, reason=f"the extra {tracker} is not installed")
    for name in ("TRACKIO_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    run_dir = record(tmp_path / "one", a_run())
    words = [sys.executable, "-m", "llamagym_tui", "track", str(run_dir), "--to", tracker]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, ended.stderr
    if tracker == "wandb":
        assert list((run_dir / "wandb").glob("offline-run-*/*.wandb"))
        return
    (file,) = (tmp_path / "TRACKIO_DIR").glob("*.db")
    with sqlite3.connect(file) as rows:
        logged = [
            msgspec.json.decode(row)
            for (row,) in rows.execute("select metrics from metrics order by step")
        ]
    assert [row["update/approx_kl"] for row in logged if "update/approx_kl" in row] == [0.25, 0.5]
