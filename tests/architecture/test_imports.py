"""What fresh interpreters load: the UI process, the help and the first frame do without the heavy libraries."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import pytest

import llamagym_tui.screens

HEAVY = {"torch", "transformers", "trl", "peft", "accelerate", "datasets"}
AFTER_THE_FIRST_FRAME = {"filelock", "gymnasium", "hashlib", "numpy", "typer"}
SCREENS = pkgutil.walk_packages(llamagym_tui.screens.__path__, "llamagym_tui.screens.")


def modules_after(statements: str) -> set[str]:
    """Names in `sys.modules` of a new interpreter that ran some statements."""
    program = f"{statements}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600
    )
    assert outcome.returncode == 0, outcome.stderr
    return set(json.loads(outcome.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "statements",
    [
        "from llamagym_tui import Agent",
        "import llamagym_tui.app.app, llamagym_tui.cli.main, llamagym_tui.cli.start",
        "import " + ", ".join(module.name for module in SCREENS),
        "from llamagym_tui.setup import catalog; catalog.find_agent('blackjack')().get_system_prompt()",
    ],
)
def test_the_ui_process_loads_neither_torch_nor_the_trainer(statements: str) -> None:
    loaded = modules_after(statements)
    assert not loaded & HEAVY
    ours = ("llamagym_tui.engine", "llamagym_tui.trainer.")
    assert not [name for name in loaded if name.startswith(ours)]


def test_the_watch_of_a_training_loads_neither_torch_nor_a_screen() -> None:
    loaded = modules_after(
        "from llamagym_tui import LlamaGymWatch\n"
        "import tempfile\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    watch = LlamaGymWatch(folder + '/run')\n"
        "    watch.rollout(prompt='?', completion='!', reward=1.0)\n"
        "    watch.update()\n"
        "    watch.close()"
    )
    assert "filelock" in loaded, "it was written"
    assert not loaded & {*HEAVY, "textual", "numpy", "gymnasium"}


def test_help_loads_nothing_heavy() -> None:
    loaded = modules_after(
        "from llamagym_tui.cli.main import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert not loaded & {*HEAVY, "textual", "gymnasium", "numpy"}


def test_the_first_frame_comes_before_everything_that_can_wait() -> None:
    program = (
        "import json, os, sys\n"
        "from llamagym_tui.app import app\nfrom llamagym_tui.cli import start\n"
        "def painted(self):\n"
        "    print(json.dumps(sorted(sys.modules)), file=sys.__stdout__, flush=True)\n"
        "    os._exit(0)\n"
        "app.LlamaGymApp._first_frame_painted = painted\n"
        "app.LlamaGymApp.run = lambda self, run=app.LlamaGymApp.run: run(self, headless=True, size=(120, 34))\n"
        "start._playground('blackjack')"
    )
    loaded = modules_after(program)
    assert "llamagym_tui.screens.playground.playground" in loaded
    assert not loaded & AFTER_THE_FIRST_FRAME


def test_the_public_names_are_those_of_their_homes() -> None:
    modules_after(
        "import llamagym_tui, llamagym_tui.agent\n"
        "assert llamagym_tui.Agent is llamagym_tui.agent.Agent\n"
        "assert set(llamagym_tui.__all__) <= set(dir(llamagym_tui))"
    )
