"""TextWorld's games: what they write, what is refused, how they are made and named."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from typer.testing import CliRunner

from llamagym_tui.agents.textworld import TextWorldAgent
from llamagym_tui.cli.main import app
from llamagym_tui.config.typed import assigned
from llamagym_tui.errors import EnvError, UsageError
from llamagym_tui.game import text_game
from llamagym_tui.game.environment import agent_env, make_env, turn_limit
from llamagym_tui.game.observed import observed
from llamagym_tui.setup import catalog
from llamagym_tui.setup.run_config import run_config

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


def test_a_seed_is_brought_into_the_range_that_the_interpreter_takes(
    env: gymnasium.Env[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(env.unwrapped._game, "seed", taken.append)  # type: ignore[attr-defined]
    for seed in (2**15 - 1, 2**15 + 3):
        env.reset(seed=seed)
    assert taken == [2**15 - 1, 3]


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


@pytest.mark.parametrize("command", ["open trunk", "OPEN  \\antique\\\n(trunk).", "look"])
def test_other_words_for_a_command_and_a_listed_one_are_not_refused(
    env: gymnasium.Env[Any, Any], command: str
) -> None:
    env.reset()
    _, reward, _, _, info = env.step(command)
    assert reward == (command != "look")
    assert "invalid_action" not in info


def test_a_game_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = text_game.made("tw-simple", SETTINGS)
    monkeypatch.setattr(subprocess, "run", None)
    assert text_game.made("tw-simple", {**SETTINGS, "test": False}) == made
    with pytest.raises(TypeError):  # another one would be made
        text_game.made("tw-simple", {**SETTINGS, "seed": 2})


def test_what_tw_make_refuses_is_said_in_its_words() -> None:
    sentence = r"^The environment tw-simple cannot be made: tw-make tw-simple: argument --rewards: invalid choice: 'x'"
    with pytest.raises(EnvError, match=sentence):
        make_env("tw-simple", {**SETTINGS, "rewards": "x"})
    assert not list(
        text_game.made("tw-simple", SETTINGS).parents[1].glob(".llamagym-*")
    )  # nor is a draft left


@pytest.mark.slow
def test_two_processes_that_need_a_new_game_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path))
    code = "from llamagym_tui.game.text_game import made; print(made('tw-coin_collector', {'level': 2, 'seed': 7}))"
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = [each.communicate(timeout=120)[0].strip() for each in both]
    assert paths[0] == paths[1]
    assert [path.name for path in (tmp_path / "games").iterdir() if path.is_dir()] == [
        Path(paths[0]).parent.name
    ]
    agent = catalog.find_agent("tw-coin_collector", {"level": 2, "seed": 7})()
    _, info = agent_env(agent).reset()
    assert info["policy_commands"][-1] == "take coin"


def test_a_game_file_is_an_agent_on_the_command_line(
    game: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(game.parent)
    assert (catalog.absolute_spec("./mine.z8"), catalog.agent_name("./mine.z8")) == (
        str(game),
        "mine",
    )
    agent = catalog.find_agent("./mine.z8", {"max_episode_steps": 7})
    assert issubclass(agent, TextWorldAgent)
    assert (agent.env_id, agent.title, agent.baselines) == (str(game), "mine", {})
    env = agent_env(agent())
    assert turn_limit(env) == 7
    assert "examine wooden door" in (observed(agent(), *env.reset()).actions or ())
    with pytest.raises(UsageError, match=r"There is no game file .*theirs\.z8; check the path"):
        catalog.find_agent("theirs.z8")
    assert catalog.find_agent("tw-cooking").env_kwargs == {}
    assert catalog.find_agent("tw-simple") is TextWorldAgent


def test_without_textworld_its_agent_is_refused_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "find_spec", lambda name: None)
    for spec in ("textworld", "tw-cooking"):
        refused = CliRunner().invoke(app, ["train", spec])
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "pip install 'llamagym-tui[textworld]'" in refused.stderr


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
    assert agent.draw("", info) == "west -- [ Kitchen ]\n\nYou are carrying nothing.\nscore 3 of 8"
    assert agent.read(" Take milk.\n").action == "Take milk"


def test_a_run_of_a_text_game_chooses_among_commands_unless_another_way_is_set() -> None:
    generation = run_config("tw-simple").generation
    assert (generation.policy, generation.normalization) == ("score", "token")
    other = ["generation.policy=generate"]
    assert run_config("textworld", {**assigned(other)}).generation.policy == "generate"


@pytest.mark.parametrize("content", [b"", b"\x08" + b"\xff" * 3000])
def test_a_file_that_is_no_game_is_refused_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.z8").write_bytes(content)
    with pytest.raises(
        EnvError, match=r"bad\.z8 cannot be made: it is no game that TextWorld can play: "
    ):
        make_env(str(tmp_path / "bad.z8"), {})
