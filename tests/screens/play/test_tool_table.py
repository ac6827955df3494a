"""A class for TRL's trainers at a person's table."""

from __future__ import annotations

from pathlib import Path

from tests.screens.play.test_table import SIZE, environment_table
from tests.screens.steps import sees, shown
from tests.setup.test_game_examples import GUESS


async def test_a_class_for_trls_trainers_is_played_by_calls_of_its_tools(tmp_path: Path):
    file = tmp_path / "guess.py"
    file.write_text(GUESS)
    app = environment_table(f"{file}:Guess")
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "guess(self, word: str) -> str")
        await pilot.press(*'{"name": "guess", "arguments": {"word": "crane"}}', "enter")
        await sees(pilot, "reward +0 · return so far +0 · observation right")
        await pilot.press(*"It was crane.", "enter")
        await sees(pilot, "reward +1 · return so far +1")
        screen = shown(pilot)
        assert "action  done · read by the agent · reward +1" in screen
        assert "return  ▲ +1 · 2 turns, terminated" in screen


async def test_an_environment_that_fails_is_a_sentence_with_its_place(
    tmp_path: Path,
):
    file = tmp_path / "guess.py"
    file.write_text(GUESS.replace("self.word, self.reward = word, 0.0", "self.reward = 1 / word"))
    app = environment_table(f"{file}:Guess")
    app._agent.agent.env_kwargs = {"word": 0}  # type: ignore[misc]
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "tools/Guess-v0 failed to reset: ZeroDivisionError: division by zero")
        # Where the folder's name is long, the line breaks within that of the file.
        assert "guess.py,line4" in "".join(shown(pilot).split())
