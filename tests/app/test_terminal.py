"""The terminal is the shell's again, and the trainer has ended in order, however the app ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("pty")

from tests.app.terminal_app import TerminalApp

PLAYS = "collecting turns"
BOOM = """
def boom(*arguments, **settings):
    raise RuntimeError("it \\x1b[2J broke")
"""
BROKEN_WRITER = """
class Broken:
    left = 20
    def write(self, text, real=sys.__stderr__.write):
        self.left -= 1
        return real(text) if self.left > 0 else boom()
    def flush(self):
        pass
    def fileno(self):
        return 2
sys.__stderr__ = Broken()
"""
FAULTS = {
    "handler": ("module.LlamaGymApp.action_help = boom", "?"),
    "compose": (
        "from llamagym_tui.screens.help.help import HelpDialog\nHelpDialog.compose = boom",
        "?",
    ),
    "reducer": ("module.reduce = boom", ""),
    "render": (
        "from llamagym_tui.screens.help.help_text import HelpText\nHelpText.render_line = boom",
        "?",
    ),
    "timer": ("module.LlamaGymApp._paint = boom", ""),
    "first screen": ("module.LlamaGymApp.get_default_screen = boom", ""),
    "mount": ("module.LlamaGymApp._first_frame_painted = boom", ""),
    "input thread": (
        "from textual.drivers.linux_driver import XTermParser\nXTermParser.feed = boom",
        "x",
    ),
    "output thread": (BROKEN_WRITER, ""),
    "start of the driver": (
        "from textual.drivers.linux_driver import LinuxDriver\nLinuxDriver._enable_bracketed_paste = boom",
        "",
    ),
}
HANGS = """
import time
from llamagym_tui.app import terminal
def hang(self):
    (folder / "hangs").write_text("yes")
    time.sleep(600)
module.LlamaGymApp.action_help = hang
"""
SLOW_SIGNALS = [
    pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGQUIT, signal.SIGHUP)
]


@pytest.mark.parametrize(
    "place",
    [pytest.param(each, marks=[] if each == "handler" else pytest.mark.slow) for each in FAULTS],
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, *SLOW_SIGNALS])
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


@pytest.mark.slow
def test_modes_that_only_some_terminals_have_are_left_too(tmp_path: Path):
    with TerminalApp(tmp_path) as app:
        app.sees(PLAYS)
        app.types("\x1b[?2048;2$y")  # a terminal that reports its size in band
        app.sees("\x1b[?1016h")
        app.signal(signal.SIGTERM)
        app.ends()
        assert app.modes_left_on() == []


@pytest.mark.slow
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
        assert (
            "The trainer was ended before it had saved: its last checkpoint is kept. Resume with: "
            in app.parting()
        )


@pytest.mark.slow
def test_hang_ups_that_come_twice_do_not_end_what_is_saved(tmp_path: Path):
    with TerminalApp(tmp_path, "slow-to-stop") as app:
        app.sees(PLAYS)
        for _ in range(3):
            app.signal(signal.SIGHUP)
            app.read(0.2)
        assert app.ends() == 0
        assert app.trainers_exit_code == "0"


@pytest.mark.parametrize("second", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_app_that_hangs_is_ended_by_a_second_signal_or_after_a_while(
    tmp_path: Path, second: bool
):
    with TerminalApp(
        tmp_path, fault=HANGS if second else f"{HANGS}\nterminal.LEAVE_S = 0.5"
    ) as app:
        app.sees(PLAYS)
        app.types("?")
        app.waits_for("hangs")
        app.signal(signal.SIGTERM)
        if second:
            time.sleep(0.2)
            app.signal(signal.SIGTERM)
        assert app.ends() == 128 + signal.SIGTERM
        assert app.modes_left_on() == []


@pytest.mark.parametrize("script", [pytest.param("quiet", marks=pytest.mark.slow), "flood"])
def test_a_terminal_that_is_gone_ends_app_and_trainer_though_nobody_tells(
    tmp_path: Path, script: str
):
    with TerminalApp(tmp_path, script) as app:
        app.waits_for("run/trainer.log")
        app.hang_up()
        app.process.wait(60)
        assert app.trainers_exit_code == "0"


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_paints_everything_again(tmp_path: Path):
    with TerminalApp(tmp_path, shell=True) as app:
        app.sees(PLAYS)
        app.types("\x1a")
        app.sees("ended with 148")  # as the shell has it for what a stop signal has stopped
        app.sees("READY ", since=len(app.output) - 200)
        assert app.modes_left_on(shell=True) == []
        at = len(app.output)
        app.types("fg\r")
        app.sees(PLAYS, since=at)
        app.sees("Blackjack-v1", since=at)
        app.types("q")
        app.sees("quit?", since=at)
        app.types("y")
        app.sees("READY ", since=at)
        assert app.trainers_exit_code == "0"


@pytest.mark.slow
def test_an_app_that_was_stopped_meanwhile_answers_keys_while_it_catches_up(tmp_path: Path):
    with TerminalApp(tmp_path, "flood", shell=True) as app:
        app.sees("episode ")
        app.types("\x1a")
        app.sees("ended with 148")
        time.sleep(1)
        at, before = len(app.output), time.monotonic()
        app.types("fg\r")
        app.sees("Quit", since=at)
        app.types("?")
        app.sees("Pause after", since=at)
        assert time.monotonic() - before < 5


@pytest.mark.slow
def test_a_job_that_is_stopped_continued_behind_and_killed_leaves_nothing_on(tmp_path: Path):
    with TerminalApp(tmp_path, shell=True) as app:
        app.sees(PLAYS)
        app.types("\x1a")
        app.sees("ended with 148")
        app.types("bg\r")
        app.sees("&\r\n")
        app.types("kill %1; fg\r")
        app.sees("Saving the run")
        app.sees("READY ", since=app.output.rindex(b"Saving"))
        assert app.modes_left_on(shell=True) == []
        assert app.trainers_exit_code == "0"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_app_that_was_stopped_and_is_ended_from_elsewhere_saves(
    tmp_path: Path, number: signal.Signals
):
    with TerminalApp(
        tmp_path, fault='import os\n(folder / "pid").write_text(str(os.getpid()))', shell=True
    ) as app:
        app.sees(PLAYS)
        app.types("\x1a")
        app.sees("ended with 148")
        for each in (number, signal.SIGCONT):
            os.kill(int((tmp_path / "pid").read_text()), each)
        app.waits_for("trainer's exit code")
        assert app.trainers_exit_code == "0"
        assert app.modes_left_on(shell=True) == []


@pytest.mark.slow
def test_where_nobody_could_bring_it_back_ctrl_z_stops_nothing(tmp_path: Path):
    with TerminalApp(tmp_path) as app:
        app.sees(PLAYS)
        app.types("\x1a")
        app.sees("\x1b[?1049l")
        app.sees("\x1b[?1049h", since=app.output.rindex(b"\x1b[?1049l"))
        app.types("?")
        app.sees("Pause after")
