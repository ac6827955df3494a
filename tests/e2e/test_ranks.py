"""Two ranks play and train together, end together, and go on in another number."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from llamagym_tui.cli.main import app
from llamagym_tui.config import PPOConfig, RunConfig
from llamagym_tui.protocol.commands import ChangeSettings, RollBack, SetSystemPrompt, Stop
from llamagym_tui.protocol.events import (
    EpisodesCounted,
    RolledBack,
    SettingsChanged,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.run_store import RunStore, read_events
from llamagym_tui.trainer.ranks import _see_one_gpu
from llamagym_tui.trainer.rollout.led_rollout import LedRollout
from llamagym_tui.trainer.session import Session

pytestmark = pytest.mark.timeout(400)


def train(
    run_dir: Path, *arguments: str, every_s: int = 0, **more: object
) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "llamagym_tui",
        "train",
        *arguments,
        "--run-dir",
        str(run_dir),
        "--json",
    ]
    command += [
        "--final-episodes",
        "0",
        "--set",
        f"checkpoint_every_s={every_s}",
        "--set",
        "ppo.batch_size=128",
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def trained(run_dir: Path, *arguments: str) -> dict[str, object]:
    process = train(run_dir, *arguments)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    return json.loads(out)


def other_rank(process: subprocess.Popen[str]) -> int:
    """Its process id, once it was started."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for child in psutil.Process(process.pid).children():
            if "spawn_main" in " ".join(child.cmdline()):
                return child.pid
        time.sleep(0.05)
    raise AssertionError("no other rank was started")


def warnings(run_dir: Path) -> list[str]:
    return [event.message for event in read_events(run_dir) if isinstance(event, WarningRaised)]


@pytest.mark.slow
def test_two_ranks_train_and_the_run_goes_on_with_any_number(tmp_path):
    run = tmp_path / "run"
    found = trained(run, "blackjack", "--ranks", "2", "--envs", "32", "--episodes", "401")
    assert found["episodes"] == 401
    updates = [event.stats for event in read_events(run) if isinstance(event, UpdateFinished)]
    assert len(updates) >= 2
    assert all(each.first_ratio < 1e-4 and each.turns >= 128 for each in updates)
    counted = [event for event in read_events(run) if isinstance(event, EpisodesCounted)]
    assert counted[-1].episodes == 401
    assert trained(run, "--resume", "--ranks", "2", "--episodes", "600")["episodes"] == 600
    assert warnings(run)[-1] == "The batch that was under way on several ranks begins anew."
    assert trained(run, "--resume", "--ranks", "1", "--episodes", "700")["episodes"] == 700
    assert trained(run, "--resume", "--ranks", "3", "--episodes", "760")["episodes"] == 760


def test_a_refused_run_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    words = ["train", "blackjack", "--ranks", "4", "--envs", "2"]
    assert CliRunner().invoke(app, words).exit_code == 2
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_run_with_a_sentence_and_a_checkpoint(tmp_path):
    run = tmp_path / "run"
    process = train(run, "blackjack", "--ranks", "2", "--envs", "32", every_s=600)
    until = time.monotonic() + 120
    while not (run / "model" / "learner.msgpack").exists() and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(1)  # something more is played
    os.kill(other_rank(process), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert (
        "Rank 1 has ended (SIGKILL), so all 2 have ended; --resume goes on from the last checkpoint"
        in err
    )
    state = msgspec.msgpack.decode((run / "model" / "learner.msgpack").read_bytes())
    assert state["learner"]["updates"] >= 1
    assert trained(run, "--resume", "--ranks", "2", "--episodes", "1")["updates"] >= 1


@pytest.mark.slow
def test_a_rank_that_is_killed_before_they_met_ends_the_run_with_a_sentence(tmp_path):
    process = train(tmp_path / "run", "blackjack", "--ranks", "2")
    os.kill(other_rank(process), signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Rank 1 has ended (SIGKILL) before the run began" in err


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
@pytest.mark.parametrize(("presses", "code"), [(1, 0), (2, 130)])
def test_ctrl_c_while_ranks_are_started_stops_the_run_and_a_second_one_ends_it(
    tmp_path, presses, code
):
    process = train(tmp_path / "run", "blackjack", "--ranks", "2", start_new_session=True)
    other = other_rank(process)
    for _ in range(presses):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(1)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Rank 1" not in err
    assert not psutil.pid_exists(other)


@pytest.mark.slow
def test_under_torchrun_the_same_command_is_one_run(tmp_path):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    command += ["-m", "llamagym_tui", "train", "blackjack", "--envs", "32", "--episodes", "200"]
    command += ["--final-episodes", "0", "--json"]
    env = os.environ | {"LLAMAGYM_TUI_DATA": str(tmp_path)}
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=True, env=env
    )
    assert json.loads(found.stdout)["episodes"] == 200
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "config.json").read_text())["ranks"] == 2


@pytest.mark.slow
def test_what_changes_while_it_runs_changes_on_every_rank(tmp_path):
    script = {
        1: SetSystemPrompt(system_prompt="Reply with 0 or 1."),
        2: ChangeSettings(changes={"n_envs": 9, "generation.temperature": 0.5}),
        4: RollBack(),
        6: Stop(),
    }
    events: list[object] = []
    command_queue: queue.SimpleQueue[object] = queue.SimpleQueue()

    def watch(event: object) -> None:
        events.append(event)
        made = sum(isinstance(each, UpdateFinished) for each in events)
        if isinstance(event, UpdateFinished) and made in script:
            command_queue.put(script[made])

    settings = PPOConfig(batch_size=64, lr=3e-3, critic_warmup_updates=0, kl_coef=0.05)
    config = RunConfig(
        agent="blackjack",
        run_dir=str(tmp_path / "run"),
        n_envs=16,
        ranks=2,
        threads=1,
        ppo=settings,
    )
    session = Session(config, RunStore.create(config), command_queue, sinks=[watch])
    assert session.run() == "stopped", session.error
    assert [event for event in events if isinstance(event, RolledBack)]
    updates = [event.stats for event in events if isinstance(event, UpdateFinished)]
    assert len(updates) == 6
    # Other weights or another temperature on the other rank, and its log-probabilities would not be found again.
    assert max(each.first_ratio for each in updates) < 1e-4
    assert max(each.approx_kl for each in updates) > 1e-4, "weights moved"
    (changed,) = [at for at, event in enumerate(events) if isinstance(event, SettingsChanged)]
    assert {
        event.prompt_version for event in events[changed:] if isinstance(event, EpisodesCounted)
    } == {1}


def test_a_rank_that_is_slow_is_named_once(monkeypatch):
    events: list[WarningRaised] = []
    rollout = object.__new__(LedRollout)
    rollout._emit, rollout._slow = events.append, None
    for waits in ((), (0.6, 0.1, 0.4), (0.6, 0.1, 0.7), (0.7, 0.2, 0.8)):
        rollout._warn_of_slow_rank(waits, "the last update")
    (warning,) = events
    assert warning.message == "Rank 1 is slow: the others waited for it in 60 % of the last update."


SLOW_ON_THE_OTHERS = """
import multiprocessing, time
import gymnasium
from llamagym_tui.agents.blackjack import BlackjackAgent

class Slow(gymnasium.Wrapper):
    def step(self, action):
        time.sleep(0.02 if multiprocessing.parent_process() else 0)
        return super().step(action)

class SlowAgent(BlackjackAgent):
    def wrap_env(self, env):
        return Slow(env)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slow", "named"), [(SLOW_ON_THE_OTHERS, 1), (SLOW_ON_THE_OTHERS.replace("0.02", "0"), 0)]
)
def test_a_rank_whose_environments_are_slow_is_named(tmp_path, slow, named):
    agent, run = tmp_path / "slow.py", tmp_path / "run"
    agent.write_text(slow)
    options = (
        "--ranks",
        "2",
        "--threads",
        "1",
        "--envs",
        "16",
        "--episodes",
        "300",
        "--set",
        "parallel_envs=off",
    )
    trained(run, str(agent), *options)
    of_turns = [text for text in warnings(run) if text.endswith("of each turn.")]
    assert [text.partition(":")[0] for text in of_turns] == ["Rank 1 is slow"] * named


@pytest.mark.parametrize(
    ("visible", "count", "rank", "seen"),
    [
        (None, 4, 1, "1"),
        (None, 2, 3, "1"),
        ("5,7", 2, 1, "7"),
        ("5,7", 2, 2, "5"),
        (None, 0, 1, None),
        ("", 0, 1, ""),
    ],
)
def test_each_rank_of_a_node_sees_one_of_its_gpus(monkeypatch, visible, count, rank, seen):
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    _see_one_gpu(rank)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == seen
