"""The line of an evaluation in its dialog."""

from __future__ import annotations

from functools import reduce as fold
from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.screens.metrics.evaluation import evaluation_line
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state
from tests import fakes


def test_an_evaluation_has_the_unit_of_its_returns():
    found = fakes.evaluation(43.0, episodes=100, return_stderr=1.0, elapsed_s=2.0)
    events = [replace(fakes.run_started(), return_unit="steps"), found]
    state = fold(reduce, events, initial_state(fakes.config(Path("/runs/demo"))))
    told = evaluation_line(found, state).plain
    assert told == "+43.0, 95 % interval +41.0 … +45.0 steps  100 greedy in 2.0 s"
