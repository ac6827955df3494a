"""What an import brings in, seen from fresh interpreters: the import rules as they come out in `sys.modules`."""

from __future__ import annotations

import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import llamagym_tui
from llamagym_tui.config import RunConfig
from llamagym_tui.run_store import RunStore

HEAVY = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
AFTER_THE_FIRST_FRAME = {
    *(
        "filelock",
        "gymnasium",
        "hashlib",
        "numpy",
        "textual.widgets._text_area",
        "typer",
    ),
    *(
        f"llamagym_tui.{name}"
        for name in (
            *(
                "agents.frozen_lake",
                "app.trainer_client",
                "demos.demonstration",
                "demos.human_game",
                "demos.jsonl",
            ),
            *("demos.watched_episode", "protocol.event_log", "screens.demos.recording"),
            *("screens.help.help", "screens.metrics.metrics", "screens.past_runs.home"),
            *(
                "screens.playground.panels",
                "screens.policy_map.mapped_policy",
                "screens.policy_map.screen",
            ),
            *("setup.assignments", "state.run_summary"),
        )
    ),
}
SCREEN = ("textual", "rich", "llamagym_tui.app", "llamagym_tui.screens")


def modules_after(statements: str) -> set[str]:
    """Names in `sys.modules` of a new interpreter that ran some statements."""
    program = f"{statements}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600
    )
    assert outcome.returncode == 0, outcome.stderr
    return set(json.loads(outcome.stdout.splitlines()[-1]))


def submodules(package: str) -> list[str]:
    """All modules of a package, found without importing them."""
    found = [package]
    spec = importlib.util.find_spec(package)
    assert spec is not None
    for info in pkgutil.iter_modules(spec.submodule_search_locations):
        name = f"{package}.{info.name}"
        found += submodules(name) if info.ispkg else [name]
    return [name for name in found if not name.endswith("__main__")]


@pytest.mark.parametrize(
    "statements",
    [
        "import llamagym_tui",
        "from llamagym_tui import Agent",
        "import llamagym_tui.app.app",
        "import llamagym_tui.cli.main, llamagym_tui.cli.start",
        "import llamagym_tui.demos.files, llamagym_tui.demos.human_game",
        "import llamagym_tui.state.reduce, llamagym_tui.app.trainer_client",
        "from llamagym_tui.setup import catalog; catalog.find_agent('blackjack')().get_system_prompt()",
        "from llamagym_tui.setup import catalog; catalog.action_names(catalog.find_agent('CartPole-v1'))",
    ],
)
def test_the_ui_process_imports_nothing_that_brings_torch(statements: str) -> None:
    refuse_heavy(modules_after(statements))


def test_no_screen_imports_anything_that_brings_torch() -> None:
    refuse_heavy(modules_after("import " + ", ".join(submodules("llamagym_tui.screens"))))


def refuse_heavy(loaded: set[str]) -> None:
    assert not loaded.intersection(HEAVY)
    assert not [
        name for name in loaded if name.startswith(("llamagym_tui.engine", "llamagym_tui.trainer."))
    ]


@pytest.mark.slow  # it imports everything; `make imports` sees what our own modules name
def test_the_engine_imports_no_environment_and_neither_it_nor_the_trainer_a_screen() -> None:
    engine, trainer = submodules("llamagym_tui.engine"), submodules("llamagym_tui.trainer")
    loaded = modules_after(
        f"import {', '.join(engine)}\nimport sys\nassert 'gymnasium' not in sys.modules\n"
        f"import {', '.join(trainer)}"
    )
    assert not loaded.intersection(SCREEN)


def test_help_imports_nothing_heavy() -> None:
    loaded = modules_after(
        "from llamagym_tui.cli.main import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert not loaded.intersection({*HEAVY, "textual", "gymnasium", "numpy", "datasets"})


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
    assert loaded & AFTER_THE_FIRST_FRAME == set()


def test_finding_a_built_in_agent_imports_no_gymnasium() -> None:
    loaded = modules_after(
        "from llamagym_tui.setup import catalog; catalog.find_agent('blackjack')"
    )
    assert "gymnasium" not in loaded


def test_the_public_names_are_those_of_their_homes() -> None:
    program = (
        "import llamagym_tui, llamagym_tui.agent\n"
        "assert llamagym_tui.Agent is llamagym_tui.agent.Agent\n"
        "assert set(llamagym_tui.__all__) <= set(dir(llamagym_tui))"
    )
    modules_after(program)
    with pytest.raises(AttributeError, match="no_such_name"):
        llamagym_tui.no_such_name  # noqa: B018


REFUSED = """
import sys
from pathlib import Path
from typer.testing import CliRunner
from llamagym_tui.cli.main import app
for words in {lines!r}:
    result = CliRunner().invoke(app, words.split())
    print(result.exit_code, "torch" in sys.modules, result.stderr.strip())
"""


def test_what_no_run_can_begin_with_is_refused_before_torch_is_imported_and_leaves_no_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "mine.py").write_text("def")
    lines = [
        "train blackjack --model nosuch",
        "train blackjack --model no/such",
        "eval blackjack --model no/such",
        f"train blackjack --model {tmp_path}/empty",
        f"eval blackjack --model {tmp_path}/notes.txt",
        f"train {tmp_path}/mine.py",
        "train blackjack --set ppo.gamma=7",
        f"train blackjack --run-dir {tmp_path}/held",
    ]
    store = RunStore.create(RunConfig(agent="blackjack", run_dir=str(tmp_path / "held")))
    environment = os.environ | {"LLAMAGYM_TUI_DATA": str(tmp_path / "data"), "HF_HUB_OFFLINE": "1"}
    code = REFUSED.format(lines=lines)
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout.splitlines()
    store.close()
    assert [line.split()[1] for line in found] == ["False"] * len(lines)
    assert "0" not in [line.split()[0] for line in found]
    assert "Model 'nosuch' is not on this machine" in found[0]
    assert "No model in" in found[3]
    assert "Another process trains in" in found[-1]
    assert not (tmp_path / "data" / "runs").exists()
