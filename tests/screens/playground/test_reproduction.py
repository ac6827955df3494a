"""What was done in a run as lines that a shell takes."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from llamagym_tui.protocol.events import PromptsCompared, SettingsChanged
from llamagym_tui.screens.playground.reproduction import script
from llamagym_tui.screens.widgets.dialogs import ConfirmDialog
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.pictures import SMALL_AND_SLOWLY_WIDE
from tests.screens.steps import reaches, sees

PROMPT = "It's $HOME:\n`hit` below 13 \\n %s"


def test_what_was_done_in_a_run_is_a_script(tmp_path: Path) -> None:
    config = fakes.config(Path("/runs/my run"), system_prompt=PROMPT, n_envs=64)
    state = initial_state(config)
    a, b = (fakes.evaluation(0.1, greedy=False, system_prompt=text) for text in (PROMPT, "B"))
    compared = PromptsCompared(
        a=a, b=b, pairs=9, difference=0.0, difference_stderr=0.1, enough=0.05
    )
    evaluated = [fakes.evaluation(0.1, episodes=400), fakes.evaluation(0.2, episodes=400)]
    done = [fakes.counted([1.0], 640), SettingsChanged(changes={"ppo.lr": 1e-4})]
    for event in (*fakes.opening_events("/runs/my run"), *done, *evaluated, compared):
        state = reduce(state, event)
    written, begun, changed, evaluation, first, second, comparison, report = script(state)
    subprocess.run(["sh", "-c", written], cwd=tmp_path, check=True)
    assert (tmp_path / "prompt.txt").read_text() == PROMPT
    assert begun.startswith("llamagym-tui train blackjack --model bundled ")
    assert " --prompt-file prompt.txt " in begun
    assert "--set n_envs=64" in begun
    assert "--episodes 640" in begun
    assert changed.startswith("# at episode 640, update 0: ppo.lr")
    folder = ["llamagym-tui", "eval", "blackjack", "--model", "/runs/my run"]
    assert shlex.split(evaluation) == [*folder, "--episodes", "400"], "the same is asked for once"
    assert [line.rpartition(" > ")[2] for line in (first, second)] == ["a.txt", "b.txt"]
    assert comparison.endswith("--half-width 0.05 --sampled")
    assert shlex.split(report) == ["llamagym-tui", "report", "/runs/my run"]


@SMALL_AND_SLOWLY_WIDE
def test_the_history_looks_like_this(snap_compare: Any, make_app: MakeApp, size: tuple[int, int]):
    async def opened(pilot: Pilot[None]) -> None:
        await sees(pilot, "rolling out")
        await pilot.press("H")
        await reaches(pilot, ConfirmDialog)

    evaluated = fakes.evaluation(0.1, episodes=400)
    done = [fakes.counted([1.0], 640), SettingsChanged(changes={"ppo.lr": 1e-4}), evaluated]
    app = make_app(fakes.FakeClient([*fakes.opening_events(), *done]), system_prompt=PROMPT)
    assert snap_compare(app, terminal_size=size, run_before=opened)
