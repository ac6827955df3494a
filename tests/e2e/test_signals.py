"""Signals at random moments of real sessions, each of which goes on from what the one before has left."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("pty")

from llamagym_tui import run_store
from llamagym_tui.protocol.events import RunStarted, SessionFailed, UpdateFinished
from tests.app.terminal_app import TerminalApp

SESSIONS = int(os.environ.get("SIGNALS", "25"))
"""Of each signal."""
SMALL = [
    "--threads=1",
    "--envs=16",
    *(f"--set=ppo.{name}" for name in ("batch_size=48", "mini_batch_size=24", "epochs=1")),
]
LOADING_S, TRAINING_S = 5.0, 3.0
"""Seconds among which a moment is drawn: from the start of a session, or from its first sight of a figure."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_at_any_moment_leaves_a_terminal_as_it_was_and_a_run_that_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    draw, run_dir, updates = random.Random(int(number)), tmp_path / "run-0", 0
    for session in range(SESSIONS):
        resumes = run_store.has_checkpoint(run_dir)
        if not resumes:  # it was ended before there was anything to keep
            run_dir = tmp_path / f"run-{session}"
        words = ["blackjack", "--run-dir", str(run_dir), *SMALL, *(["--resume"] if resumes else [])]
        with TerminalApp(tmp_path, command=[sys.executable, "-m", "llamagym_tui", *words]) as app:
            if trains := draw.random() < 0.6:
                app.sees("ep/s")
            end = time.monotonic() + draw.uniform(0.0, TRAINING_S if trains else LOADING_S)
            while time.monotonic() < end:
                app.read()
            app.signal(number)
            app.ends()
            assert app.modes_left_on() == [], f"session {session}"
        found = list(run_store.read_events(run_dir)) if run_store.is_run(run_dir) else []
        assert not [event for event in found if isinstance(event, SessionFailed)], (
            f"session {session}"
        )
        learnt = [event.update for event in found if isinstance(event, UpdateFinished)]
        assert learnt == list(range(1, len(learnt) + 1)), (
            f"session {session}: none is lost, none comes twice"
        )
        assert len(learnt) >= updates
        assert run_store.has_checkpoint(run_dir) or not learnt
        updates = len(learnt) if run_store.has_checkpoint(run_dir) else 0
        started = sum(isinstance(event, RunStarted) for event in found)
        print(f"{number.name} session {session}: {started} starts, {len(learnt)} updates")
    assert updates > 0
