"""The terminal is the shell's again, and the trainer has ended in order, however the app ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest.importorskip("pty")

from tests.app.terminal_app import TerminalApp

PLAYS = "episode "
BOOM = """
def boom(*arguments, **settings):
    raise RuntimeError("it \\x1b[2J broke")
"""
FAULTS = {
    "a key's action": ("module.LlamaGymApp.action_help = boom", "?"),
    "a timer": ("module.LlamaGymApp._paint = boom", ""),
    "the first screen": ("module.LlamaGymApp.get_default_screen = boom", ""),
}


@pytest.mark.parametrize(
    "place",
    [pytest.param(each, marks=[] if "key" in each else pytest.mark.slow) for each in FAULTS],
)
def test_a_fault_of_the_app_costs_one_sentence_and_loses_nothing(tmp_path: Path, place: str):
    fault, key = FAULTS[place]
    (tmp_path / "run" / "model").mkdir(parents=True)
    with TerminalApp(tmp_path, fault=BOOM + fault) as app:
        if key:
            app.sees(PLAYS)
            app.types(key)
        assert app.ends() == 1
        assert app.modes_left_on() == []
        [sentence] = [line for line in app.parting().splitlines() if "llamagym-tui: " in line]
        log = tmp_path / "app.log"
        assert sentence.endswith(
            f"llamagym-tui: The app failed (RuntimeError: it ␛[2J broke). Its traceback is in {log}. "
            f"The run is kept. Resume with: llamagym-tui blackjack --resume --run-dir {tmp_path / 'run'}"
        )
        assert "Traceback" not in app.text()
        assert "in boom" in log.read_text()
        assert app.trainers_exit_code in ("0", "None"), "it was stopped, or had not been started"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back_and_ends_the_trainer_in_order(
    tmp_path: Path, number: signal.Signals
):
    (tmp_path / "run" / "model").mkdir(parents=True)
    with TerminalApp(tmp_path) as app:
        app.sees(PLAYS)
        app.signal(number)
        assert app.ends() == 0
        assert app.modes_left_on() == []
        assert app.trainers_exit_code == "0"
        waits, kept = app.parting().splitlines()[-2:]
        assert waits.endswith("Saving the run; ctrl+c again ends without it.")
        assert kept.startswith("The run is kept. Resume with: ")


def test_a_trainer_that_saves_for_long_is_left_by_a_second_signal(tmp_path: Path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    with TerminalApp(tmp_path, "deaf") as app:
        app.waits_for("run/trainer.log")
        app.signal(signal.SIGINT)
        app.sees("Saving the run")
        assert app.modes_left_on() == []
        app.signal(signal.SIGINT)
        assert app.ends() == 0
        assert app.trainers_exit_code == "-9"
        assert "ended before it had saved: its last checkpoint is kept." in app.parting()


def test_a_terminal_that_is_gone_ends_app_and_trainer(tmp_path: Path):
    with TerminalApp(tmp_path, "flood") as app:
        app.waits_for("run/trainer.log")
        app.hang_up()
        app.signal(signal.SIGHUP)
        app.signal(signal.SIGHUP)
        app.process.wait(60)
        assert app.trainers_exit_code == "0"
