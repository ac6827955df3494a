"""What version 0.1.0 has written can be used: a run, its checkpoint, demonstrations, keys and preferences."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from llamagym_tui import run_store, user_files
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.demos import files as demo_files
from llamagym_tui.protocol.events import RunFinished, RunStarted
from llamagym_tui.screens.help.all_bindings import key_names, keyed_classes, movable
from llamagym_tui.screens.help.keys_toml import read_keys
from llamagym_tui.state.past_run import PastRun
from llamagym_tui.state.replay import Player, Recording
from llamagym_tui.state.run import initial_state
from llamagym_tui.state.run_summary import summary_of

RECORDED = Path(__file__).parent / "recorded" / "version_0_1_0"
EPISODES, UPDATES = 400, 6
"""Of the recorded run, as its last event has them."""


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run among the user's runs, with its checkpoint in the place of the model that it began with."""
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    folder = shutil.copytree(RECORDED / "run", tmp_path / "runs" / "run")
    shutil.copytree(folder / "model", tmp_path / "tiny")
    return Path(folder)


def test_its_run_is_listed_and_its_summary_has_the_figures_of_its_end(run_dir: Path) -> None:
    [info] = run_store.list_runs()
    assert (info.run_dir, info.config.agent, info.config.seed, info.has_checkpoint) == (
        run_dir,
        "blackjack",
        5,
        True,
    )
    summary = summary_of(run_dir)
    assert (summary.episodes, summary.updates) == (EPISODES, UPDATES)
    assert summary.ending == "finished"
    assert summary.changes == {"ppo.clip_range": 0.1}
    assert summary.evaluation is not None
    assert summary.evaluation.episodes == 16


def test_its_run_is_replayed_to_the_end(run_dir: Path) -> None:
    recording = Recording(run_dir)
    while not recording.complete:
        recording.read_on()
    assert recording.fault == ""
    player = Player(recording)
    player.jump(recording.duration_s)
    state = player.state
    assert (state.episodes, state.updates) == (EPISODES, UPDATES)
    assert state.finished is not None
    assert (state.returns.episodes, state.finished.episodes) == (EPISODES, EPISODES)
    assert [version.text for version in state.prompts][1:] == ["Hit below 13."]
    changes = ["prompt v1 “Hit below 13.”", "ppo.clip_range 0.1", "inference", "train"]
    assert [mark.label for mark in state.marks] == changes
    assert state.mapped is not None
    assert len(state.transcript.entries) > 20


def test_its_history_is_known_when_it_is_resumed(run_dir: Path) -> None:
    config = replace(run_store.read_config(run_dir), run_dir=str(run_dir))
    past = PastRun(config)
    while not past.complete:
        past.read_on()
    assert past.fault == ""
    state = past.recalled_in(initial_state(config))
    assert (state.episodes, state.updates, len(state.history.samples)) == (
        EPISODES,
        UPDATES,
        UPDATES,
    )
    assert run_store.last_settings(run_dir).system_prompt == "Hit below 13."
    assert run_store.last_settings(run_dir).ppo.clip_range == 0.1


def test_its_run_goes_on_from_its_checkpoint(run_dir: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "llamagym_tui",
        "train",
        "--resume",
        "--run-dir",
        str(run_dir),
        "--episodes",
        "440",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    events = list(run_store.read_events(run_dir))
    started = [event for event in events if isinstance(event, RunStarted)][-1]
    assert (started.episodes, started.updates) == (EPISODES, UPDATES)
    assert (started.system_prompt, started.prompt_version) == ("Hit below 13.", 1)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].episodes == 440


def test_its_demonstrations_are_without_fault() -> None:
    demonstrations = demo_files.read(RECORDED / "demos.jsonl")
    assert [each.source for each in demonstrations] == ["expert"] * 8 + ["human"]
    assert demo_files.check(RECORDED / "demos.jsonl", BlackjackAgent()) == []


def test_its_keys_are_taken() -> None:
    keys, faults = read_keys(RECORDED, movable([*keyed_classes(), LlamaGymApp]), key_names())
    assert (keys, faults) == ({"pause": "f9", "watch.next": "n"}, ())


def test_its_preferences_are_taken() -> None:
    assert user_files.load_preferences(RECORDED) == user_files.Preferences(
        theme="nord", drawing=False
    )
