"""A summary is made once, kept, and brought up to date by reading on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from llamagym_tui.protocol.events import (
    AnyEvent,
    RolledBack,
    RunFinished,
    SessionFailed,
    SettingsChanged,
    WarmStartEvaluated,
    WarmStartFinished,
)
from llamagym_tui.runs import event_log
from llamagym_tui.settings import PPOConfig, WarmStartStats
from llamagym_tui.state.run_summary import differences, summary_of
from tests import fakes
from tests.recorded_run import record

END = RunFinished(episodes=512, env_steps=0, updates=1, elapsed_s=9.0)


def a_run(run_dir: Path, *more: AnyEvent) -> Path:
    return record(run_dir, [*fakes.opening_events(), *fakes.learning(4), *more])


def append(run_dir: Path, *events: AnyEvent) -> None:
    log = event_log.EventLog(run_dir / "events.jsonl")
    for event in events:
        log.append(event)
    log.close()


def test_a_run_is_told_in_a_few_figures(tmp_path: Path):
    summary = summary_of(a_run(tmp_path, END))
    assert (summary.episodes, summary.updates, summary.ending) == (512, 1, "finished")
    assert summary.baselines == {"random": -0.396, "optimal": -0.0466}


def test_an_evaluation_before_a_warm_start_is_not_the_present_one_afterwards(tmp_path: Path):
    found = fakes.evaluation(-0.4)
    after = msgspec.structs.replace(found, mean_return=-0.1)
    trained = WarmStartFinished(
        method="sft",
        stats=WarmStartStats(
            demonstrations=1,
            tokens=9,
            steps=60,
            first_loss=1.0,
            last_loss=0.1,
            elapsed_s=1.0,
            cancelled=False,
        ),
    )
    back = RolledBack(update=0, reason="x")
    log = [found, trained, WarmStartEvaluated(before=found, after=after), back]
    seen = [summary_of(a_run(tmp_path / str(n), *log[:n])).evaluation for n in range(1, 5)]
    assert seen == [found, None, after, None]


def test_a_kept_summary_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = summary_of(a_run(tmp_path))
    read: list[AnyEvent] = []
    monkeypatch.setattr(event_log, "read_from", spying(read))
    assert summary_of(tmp_path) == first
    assert read == [], "an event was read again"


def spying(read: list[AnyEvent]):
    whole = event_log.read_from

    def read_from(path: Path, offset: int):
        for logged in whole(path, offset):
            read.append(logged.event)
            yield logged

    return read_from


def test_seconds_add_up_over_sessions(tmp_path: Path):
    stamps = [0.0, 5.0, 60.0, 0.5, 4.0]
    events = [msgspec.structs.replace(fakes.counted([1.0], 1), at_s=at_s) for at_s in stamps]
    assert summary_of(record(tmp_path, events)).played_s == 64.0


def test_how_it_ended_is_that_of_the_last_session(tmp_path: Path):
    assert summary_of(a_run(tmp_path, SessionFailed(message="x"))).ending == "failed"
    append(tmp_path, fakes.run_started())
    assert summary_of(tmp_path).ending == "open"


def test_two_runs_differ_in_what_was_given_and_in_what_was_changed_live(tmp_path: Path):
    first = fakes.config(tmp_path / "a", n_envs=64)
    second = fakes.config(tmp_path / "b", ppo=PPOConfig(lr=1e-3))
    told = differences([first, second], [{}, {"ppo.kl_coef": 0.5}])
    assert told == {
        "n_envs": ("64", "128"),
        "ppo.lr": ("0.0005", "0.001"),
        "ppo.kl_coef": ("0.02", "0.02 → 0.5"),
    }


def test_a_setting_changed_live_is_kept_in_the_summary_until_the_run_is_resumed(tmp_path: Path):
    change = SettingsChanged(changes={"ppo.lr": 1e-4})
    assert summary_of(a_run(tmp_path, change)).changes == {"ppo.lr": 1e-4}
    append(tmp_path, fakes.run_started())
    assert summary_of(tmp_path).changes == {}
