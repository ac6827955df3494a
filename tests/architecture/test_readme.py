"""The examples of the README and the guide are programs, and their commands have the options that are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from llamagym_tui.cli.main import app
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.game.environment import agent_env
from llamagym_tui.runs.run_store import read_events
from llamagym_tui.setup import catalog

ROOT = Path(__file__).resolve().parents[2]
PAGES = "".join(
    path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md")))
)
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGES, re.DOTALL)
COMMANDS = re.findall(
    r"^llamagym-tui ([^\n#]*\w)",
    "".join(re.findall(r"```sh\n(.*?)```", PAGES, re.DOTALL)),
    re.MULTILINE,
)
"""What stands behind the program's name."""


def test_the_agent_file_of_the_readme_works(tmp_path: Path) -> None:
    path = tmp_path / "cliff.py"
    path.write_text(
        next(example for example in EXAMPLES if "# cliff.py" in example), encoding="utf-8"
    )
    agent = catalog.find_agent(f"{path}:CliffAgent")()
    assert agent.read('{"action": 1}').action == 1
    assert agent.read("I go down.").action == 2
    assert "36" in agent.format_observation(36)
    assert len(catalog.action_names(type(agent))) == 4
    assert agent.history is None, "a run finds how many earlier turns help"


def test_the_generic_agent_of_the_guide_works(tmp_path: Path) -> None:
    path = tmp_path / "pendulum.py"
    path.write_text(
        next(example for example in EXAMPLES if "GenericAgent" in example), encoding="utf-8"
    )
    agent = catalog.find_agent(str(path))()
    env = agent_env(agent)
    env.reset(seed=1)
    assert agent.format_observation(env.step(2)[0]).startswith("Observation: x ")
    assert agent.read("wait").action == 1


@pytest.mark.parametrize("example", [text for text in EXAMPLES if "LlamaGymWatch" in text])
def test_the_watched_trainings_run(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset
    from transformers import AutoTokenizer

    monkeypatch.chdir(tmp_path)
    example = example.replace("Qwen/Qwen3-0.6B", str(bundled_model_path()))
    quick = "max_steps=1, use_cpu=True, bf16=False, report_to=[], max_completion_length=4, "
    example = example.replace("GRPOConfig(", f"GRPOConfig({quick}", 1)
    given: dict[str, Any] = {
        "dataset": Dataset.from_list([{"prompt": "Hit or stick?"}] * 8),
        "count_commas": lambda completions, **_: [float(text.count(",")) for text in completions],
        "tokenizer": AutoTokenizer.from_pretrained(bundled_model_path()),
        "sample": lambda prompt: ([20], [-0.5], "4"),
    }
    exec(example, given)
    (folder,) = (tmp_path / "runs").iterdir()
    counts = [
        (type(event).__name__, getattr(event, "updates", None)) for event in read_events(folder)
    ]
    updates = 1 if folder.name == "commas" else 3
    assert counts[-1] == ("RunFinished", updates)
    names = [name for name, _ in counts]
    assert names.count("UpdateFinished") == updates
    assert names.count("EpisodeFinished") == names.count("TurnInspected") == {1: 8, 3: 6}[updates]


@pytest.mark.parametrize(
    "example", [text for text in EXAMPLES if "load_model_and_tokenizer" in text]
)
def test_the_library_examples_run(example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert example.count("range(1000)") == 1
    names: dict[str, Any] = {}
    exec(compile(example.replace("range(1000)", "range(3)"), "example", "exec"), names)
    assert names["agent"].model is not None


def test_the_examples_are_python() -> None:
    assert len(EXAMPLES) >= 4
    for example in EXAMPLES:
        compile(example, "example", "exec")


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_a_command_of_the_pages_has_the_options_that_they_name(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"])
    assert shown.exit_code == 0, shown.output


def test_an_option_that_there_is_not_is_found() -> None:
    assert len(COMMANDS) > 20
    shown = CliRunner().invoke(app, ["train", "blackjack", "--hours", "1", "--help"])
    assert shown.exit_code == 2
