"""The trainer as a process of its own, with the model that ships: what it says, how it ends, what it leaves."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from llamagym_tui.protocol.commands import (
    Evaluate,
    Pause,
    Resume,
    SaveCheckpoint,
    SetMode,
    SetSystemPrompt,
    StartRun,
    Stop,
)
from llamagym_tui.protocol.events import (
    PROTOCOL_VERSION,
    CheckpointSaved,
    EpisodeFinished,
    EpisodesCounted,
    EpisodeStarted,
    EvaluationFinished,
    Hello,
    ModeChanged,
    ObservationShown,
    PhaseChanged,
    PromptChanged,
    RunFinished,
    RunStarted,
    SessionFailed,
    TokensStreamed,
    TurnFinished,
    UpdateFinished,
)
from llamagym_tui.runs import run_store
from llamagym_tui.settings import PPOConfig, RunConfig
from tests.e2e.trainer_process import TrainerProcess

SMALL = PPOConfig(batch_size=32, mini_batch_size=16, epochs=1)
posix = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")


@pytest.mark.slow
@posix
def test_a_run_is_reported_from_hello_until_it_is_asked_to_terminate_whatever_else_is_printed(
    tmp_path: Path, model: str
) -> None:
    with TrainerProcess(tmp_path, code=NOISE) as trainer:
        hello = trainer.wait_for(Hello)
        assert hello.protocol == PROTOCOL_VERSION
        trainer.start(model=model, ppo=SMALL)
        trainer.wait_for(UpdateFinished, lambda event: event.update == 2)

        trainer.send(SetMode(mode="inference"))
        assert trainer.wait_for(ModeChanged).mode == "inference"
        trainer.send(SetSystemPrompt(system_prompt="Hit below 13."))
        assert trainer.wait_for(PromptChanged).prompt_version == 1
        trainer.wait_for(EpisodeStarted, lambda event: event.prompt_version == 1)
        trainer.send(Pause())
        trainer.wait_for(PhaseChanged, lambda event: event.phase == "paused")
        trainer.send(Evaluate(episodes=16, greedy=True))
        assert trainer.wait_for(EvaluationFinished).episodes == 16
        trainer.send(Resume())
        trainer.wait_for(PhaseChanged, lambda event: event.phase == "rolling_out")
        counted = trainer.wait_for(EpisodesCounted, lambda event: event.mode == "inference")
        trainer.process.send_signal(signal.SIGINT)  # ctrl+c belongs to the user interface
        trainer.wait_for(EpisodesCounted, lambda event: event.episodes > counted.episodes + 100)
        trainer.process.send_signal(signal.SIGTERM)

        assert trainer.ends() == 0
        assert trainer.fault is None
        assert trainer.of(RunFinished)[0].updates == len(trainer.of(UpdateFinished)) == 2
        assert isinstance(trainer.events[-1], RunFinished)
        check_order(trainer)
        check_folder(trainer, model)


def check_order(trainer: TrainerProcess) -> None:
    """What the screens rely on."""
    kinds = [type(event) for event in trainer.events]
    assert kinds.index(Hello) == 0
    assert kinds.index(PhaseChanged) < kinds.index(RunStarted) < kinds.index(EpisodeStarted)
    times = [event.at_s for event in trainer.events]
    assert times == sorted(times)
    for turn in trainer.of(TurnFinished)[:20]:
        pieces = [
            e.text
            for e in trainer.of(TokensStreamed)
            if (e.episode, e.turn) == (turn.episode, turn.turn)
        ]
        assert "".join(pieces) == turn.reply
    for finished in trainer.of(EpisodeFinished)[:20]:
        turns = [turn for turn in trainer.of(TurnFinished) if turn.episode == finished.episode]
        shown = [e for e in trainer.of(ObservationShown) if e.episode == finished.episode]
        assert finished.length == len(turns) == len(shown)
        assert finished.episode_return == pytest.approx(sum(turn.reward for turn in turns))
    assert (
        sum(len(event.returns) for event in trainer.of(EpisodesCounted))
        == trainer.of(RunFinished)[0].episodes
    )


def check_folder(trainer: TrainerProcess, model: str) -> None:
    """Settings, events and log of the run."""
    assert run_store.read_config(trainer.run_dir).model == model
    kept = list(run_store.read_events(trainer.run_dir))
    assert [e for e in kept if isinstance(e, UpdateFinished)] == trainer.of(UpdateFinished)
    assert kept[-1] == trainer.events[-1]
    assert not any(isinstance(event, TokensStreamed) for event in kept)
    assert run_store.last_settings(trainer.run_dir).system_prompt == "Hit below 13."
    log = trainer.log_path.read_text()
    assert "Traceback" not in log
    for line in ("printed by a library", "written by C", "printed by a child"):
        assert line in log


NOISE = """
import os, signal, threading, time
import llamagym_tui.trainer.__main__ as trainer
take_over = trainer.take_over_wire

def noise():
    # A child of `os.system` puts back, at its end, how the process took signals at its start.
    while signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        time.sleep(0.01)
    while True:
        print("printed by a library")
        os.write(1, b"written by C\\n")
        os.system("echo printed by a child")
        time.sleep(0.2)

def noisy(path):
    wire = take_over(path)
    threading.Thread(target=noise, daemon=True).start()
    return wire

trainer.take_over_wire = noisy
"""


def test_a_killed_trainer_leaves_a_run_that_goes_on(tmp_path: Path, model: str) -> None:
    with TrainerProcess(tmp_path) as trainer:
        trainer.start(model=model, ppo=SMALL)
        trainer.wait_for(CheckpointSaved)
        trainer.send(SetSystemPrompt(system_prompt="Hit below 13."))
        trainer.wait_for(PromptChanged)
        trainer.send(SaveCheckpoint())
        saved = trainer.wait_for(CheckpointSaved)
        trainer.process.kill()
        assert trainer.ends() != 0
    with TrainerProcess(tmp_path) as resumed:
        resumed.start(model=model, ppo=SMALL, resume=True)
        started = resumed.wait_for(RunStarted)
        assert (started.system_prompt, started.prompt_version) == ("Hit below 13.", 1)
        update = resumed.wait_for(UpdateFinished)
        assert update.update == saved.update + 1
        resumed.send(Stop())
        assert resumed.ends() == 0
    assert isinstance(list(run_store.read_events(tmp_path))[-1], RunFinished)


WITHOUT_A_MODEL = """
import queue, sys, time, types
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.protocol.commands import Stop
from llamagym_tui.protocol.events import EpisodesCounted, SessionFailed

class Session:
    def __init__(self, config, store, commands, sinks, turn_s):
        self.commands, (self.send,) = commands, sinks
    {run}

sys.modules["llamagym_tui.trainer.session"] = types.SimpleNamespace(Session=Session)
"""
"""A session that plays nothing: the process around it starts without torch."""
COUNTS = """
    def run(self):
        while True:
            counted = EpisodesCounted(mode="train", prompt_version=0, returns=[0.0], lengths=[1],
                                      episodes=1, env_steps=1, episodes_per_s=1.0)
            self.send(counted)
            try:
                asked = self.commands.get(timeout=0.02)
            except queue.Empty:
                continue
            assert isinstance(asked, Stop)
            return "stopped"
"""


@posix
def test_it_ends_when_nobody_reads_its_events(tmp_path: Path) -> None:
    with TrainerProcess(tmp_path, code=WITHOUT_A_MODEL.format(run=COUNTS)) as trainer:
        trainer.start()
        trainer.wait_for(EpisodesCounted)
        assert trainer.process.stdout is not None
        trainer.process.stdout.close()
        assert trainer.process.wait(15) == 0


def test_a_stop_while_libraries_are_imported_ends_it_at_once(tmp_path: Path) -> None:
    slow = "import sys, time, types\nmodule = types.ModuleType('slow')\n"
    slow += "module.__getattr__ = lambda name: time.sleep(600)\n"
    slow += "sys.modules['llamagym_tui.trainer.session'] = module\n"
    with TrainerProcess(tmp_path, code=slow) as trainer:
        trainer.start()
        trainer.send(Stop())
        assert trainer.process.wait(15) == 0


def test_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    with TrainerProcess(tmp_path) as trainer:
        trainer.send(
            StartRun(
                protocol=PROTOCOL_VERSION + 1, config=RunConfig(agent="x", run_dir=str(tmp_path))
            )
        )
        assert (
            f"version {PROTOCOL_VERSION + 1} of the protocol"
            in trainer.wait_for(SessionFailed).message
        )
        assert trainer.ends() == 1


def test_a_trainer_that_is_too_busy_to_stop_does_not_outlive_its_parent(tmp_path: Path) -> None:
    busy = WITHOUT_A_MODEL.format(run="run = lambda self: time.sleep(600)")
    short = "import llamagym_tui.trainer.__main__ as trainer\ntrainer.GRACE_S = 0.5\n"
    with TrainerProcess(tmp_path, code=short + busy) as trainer:
        trainer.start()
        trainer.end_commands()
        assert trainer.ends() == 1
        assert "leaving without a checkpoint" in trainer.log_path.read_text()
