"""TextWorld's games: what they write, what is refused, how they are made and named."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from llamagym_tui import user_files
from llamagym_tui.agents.textworld import TextWorldAgent
from llamagym_tui.game import text_game
from llamagym_tui.game.environment import make_env, turn_limit
from llamagym_tui.game.observed import observed
from llamagym_tui.setup import catalog

# Looked for and not imported, which takes more than a second of each process that collects the tests.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("textworld") is None, reason="textworld is not installed"
)
SETTINGS = dict(TextWorldAgent.env_kwargs)


@pytest.fixture(scope="module")
def env() -> gymnasium.Env[Any, Any]:
    return make_env("tw-simple", SETTINGS)


@pytest.fixture
def game(tmp_path: Path) -> Path:
    """A file of a user's own, as tw-make leaves it."""
    made = text_game.made("tw-simple", SETTINGS)
    (tmp_path / "games").mkdir()
    for suffix in (".z8", ".json"):
        shutil.copy(made.with_suffix(suffix), tmp_path / "games" / f"mine{suffix}")
    return tmp_path / "games" / "mine.z8"


def test_a_game_begins_with_its_goal_and_not_with_its_banner(env: gymnasium.Env[Any, Any]) -> None:
    text, info = env.reset(seed=1)
    lines = text.split("\n")
    assert lines[:2] == [
        "The dinner is almost ready! It's only missing a grilled milk.",
        "-= Bedroom =-",
    ]
    assert lines[-1] == "There is a closed wooden door leading east."
    assert set(info) == set(text_game.INFOS)
    assert "open antique trunk" in info["admissible_commands"]
    assert (info["score"], info["max_score"], info["won"], info["lost"]) == (0, 8, False, False)
    assert turn_limit(env) == 50


def test_a_reward_is_what_the_score_goes_up_by_and_the_known_commands_win(
    env: gymnasium.Env[Any, Any],
) -> None:
    (_, info), rewards, over = env.reset(seed=1), [], False
    while not over:
        _, reward, over, truncated, info = env.step(info["policy_commands"][0])
        rewards.append(reward)
    assert rewards == [1, 1, 1, 1, 1, 1, 1, 0, 1]
    assert (info["won"], info["lost"], truncated, info["policy_commands"]) == (
        True,
        False,
        False,
        [],
    )


@pytest.mark.parametrize(
    "command",
    [
        "xyzzy",
        "open the sky",
        "examine chest",
        "",
        "öæ",
        "quit",
        "look. Save.",
        "look\\nsave\\n/tmp/x",
        "tw-print x",
        "look then undo",
    ],
)
def test_a_command_that_is_not_listed_and_changes_nothing_is_refused(
    env: gymnasium.Env[Any, Any], command: str
) -> None:
    _, info = env.reset()
    _, reward, terminated, truncated, after = env.step(command)
    assert after == info | {"invalid_action": True}
    assert (reward, terminated, truncated) == (0, False, False)
    assert env.step("open antique trunk")[1] == 1


def test_a_game_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = text_game.made("tw-simple", SETTINGS)
    monkeypatch.setattr(subprocess, "run", None)
    assert text_game.made("tw-simple", {**SETTINGS, "test": False}) == made
    with pytest.raises(TypeError):  # another one would be made
        text_game.made("tw-simple", {**SETTINGS, "seed": 2})


def test_what_a_crash_left_of_a_game_is_removed() -> None:
    made = text_game.made("tw-simple", SETTINGS)
    left = user_files.draft_folder(made.parents[1])
    text_game.made("tw-simple", SETTINGS)
    assert made.exists()
    assert not left.exists()


def test_what_an_observation_has_and_what_is_offered() -> None:
    agent = TextWorldAgent()
    info = {
        "admissible_commands": ["examine note", "go west", "inventory", "look", "take milk"],
        "description": "-= Kitchen =-\n\nA milk is here.",
        "inventory": "You are carrying nothing.",
        "objective": "Cook.",
        "score": 3,
        "max_score": 8,
    }
    shown = (
        "-= Kitchen =-\nA milk is here.\nYou are carrying nothing.\nCommands: go west, take milk."
    )
    assert observed(agent, "You open the door.", info) == (
        f"Cook.\n{shown}",
        ("go west", "take milk"),
    )
    assert (
        observed(agent, "What?", info | {"invalid_action": True}).text == f"Cook.\nWhat?\n{shown}"
    )
    other = catalog.find_agent("tw-cooking")()
    assert observed(other, "The note is blank.", info) == (
        f"Cook.\nThe note is blank.\n{shown.replace('go west', 'examine note, go west')}",
        ("examine note", "go west", "take milk"),
    )
    assert observed(agent, "-= Kitchen =-\nA milk is here.", info).text.count("Kitchen") == 1
    assert (
        agent.draw("", info)
        == "[ Kitchen ]\nexits: west\n\nYou are carrying nothing.\nscore 3 of 8"
    )
    assert agent.read(" Take milk.\n").action == "Take milk"
