"""`compare`: pairs of episodes on the same seeds, one sentence, and the maps side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_main import run


def test_nothing_to_compare_is_refused():
    same = run("compare", "blackjack")
    assert (same.exit_code, same.stderr) == (
        2,
        "llamagym-tui: A and B are the same: give --b-model, --b-prompt-file or --b-temperature.\n",
    )


def test_two_prompts_are_compared_on_the_bundled_model(tmp_path: Path):
    prompt = tmp_path / "b.txt"
    prompt.write_text('You are playing Blackjack. Never hit. Reply with {"action": 0} to stick.')
    words = (
        "compare",
        "blackjack",
        "--b-prompt-file",
        str(prompt),
        "--episodes",
        "64",
        "--envs",
        "32",
        "--json",
    )
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pairs"] == found["a"]["episodes"] == 64
    assert found["b"]["system_prompt"] == prompt.read_text()
    assert found["difference"] == pytest.approx(
        found["b"]["mean_return"] - found["a"]["mean_return"]
    )
    assert [len(policy["shares"]) for policy in found["maps"]] == [280, 280]
