"""`view` without a terminal: the figures of steps, and what is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llamagym_tui.cli.main import app
from llamagym_tui.cli.view import texts_of
from llamagym_tui.errors import UsageError

RECORDS = [
    {"prompt": "3 + 4?", "completion": "Seven.", "reward": 1.0, "step": 1},
    {"prompt": "3 + 4?", "completion": "Six.", "reward": 0.0, "step": 1},
    {"prompt": "3 + 4?", "completion": "It is seven.", "reward": 1.0, "step": 2},
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in RECORDS), "utf-8")
    return str(file)


def printed(*words: str) -> list[str]:
    result = CliRunner().invoke(app, ["view", *words])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_each_step_is_a_line(path: str):
    first, second = printed(path)
    assert first.startswith("step 1  rollouts 2  mean 0.5  spread 0.5  groups 1  alike 0.0")
    assert second.startswith("step 2  rollouts 1  mean 1")


def test_each_step_is_a_line_of_json(path: str):
    first, second = map(json.loads, printed(path, "--json"))
    assert (first["step"], first["mean"], first["alike"]) == (1, 0.5, 0.0)
    assert second["alike"] is None


def test_what_is_found_is_a_line_each(path: str):
    found = [json.loads(line) for line in printed(path, "--search", "seven", "--json")]
    assert [each["step"] for each in found] == [1, 2]
    assert found[1]["found"] == "It is seven."


def test_the_texts_of_tokens_are_those_of_the_models_tokenizer():
    texts = texts_of("bundled")
    assert "".join(texts(range(20, 30)))
    assert len(texts([5, 6, 7])) == 3
    with pytest.raises(UsageError, match=r"no-such-model.*tokenizer\.json"):
        texts_of("no-such-model")
