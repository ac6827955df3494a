"""The guide's files for a text game and for minigrid are short, and play."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from llamagym_tui.agents.textworld import TextWorldAgent
from llamagym_tui.demos.expert_play import expert_episodes
from llamagym_tui.demos.files import DemoWriter
from llamagym_tui.demos.human_game import HumanGame
from llamagym_tui.game.drawing import drawn
from llamagym_tui.game.environment import agent_env
from llamagym_tui.game.observed import observed, reply_of
from llamagym_tui.game.text_game import made
from llamagym_tui.setup.catalog import find_agent
from tests.text_env import ROOMS, ChestEnv

GUIDE = Path(__file__).parents[2] / "docs" / "GUIDE.md"


def code_of(heading: str) -> str:
    """The first Python file of a section, under 30 lines and without a wrapper."""
    section = GUIDE.read_text(encoding="utf-8").split(f"## {heading}")[1]
    code: str = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    assert len(code.splitlines()) < 30
    assert "wrap" not in code
    return code


def test_the_guides_world_of_minigrid_is_told_and_played(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text(code_of("A world of minigrid"), encoding="utf-8")
    agent = find_agent(str(tmp_path / "world.py"))()
    env = agent_env(agent)
    text, _ = observed(agent, *env.reset(seed=1))
    assert text == (
        "use the key to open the door and then get to the goal. "
        "You see: yellow door 0 ahead -1 right, yellow key 1 ahead 0 right."
    )
    for reply in ('{"action": 3}', '{"action": 0}', "Action: open"):
        observation = env.step(agent.read(reply).action)[0]
    assert "green goal" in agent.format_observation(observation)


def test_the_guides_drawing_has_a_colour_for_each_kind_of_field(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8").split("**A drawing** is")[1]
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "corridor.py").write_text(code, encoding="utf-8")
    found = drawn(find_agent(str(tmp_path / "corridor.py"))(), None, 2)
    assert found.text == " ·  · [@] ·  ·  ·  G \nthe goal is at the right"
    assert [ground for *_, ground in found.grounds] == ["floor", "player", "floor", "goal"]


def test_the_guides_text_game_names_reads_and_plays_admissible_commands(tmp_path: Path) -> None:
    code = code_of("A text game")
    (tmp_path / "text_game.py").write_text(
        code.replace("my_game.z8", "LlamaChest-v0"), encoding="utf-8"
    )
    agent = find_agent(str(tmp_path / "text_game.py"))()
    text, actions = observed(agent, *ChestEnv().reset())
    assert (text, actions) == (
        "You are in a hall.\nCommands: take key, go north.",
        tuple(ROOMS["hall"][1]),
    )
    assert [agent.read(reply_of(agent, name)).action for name in actions] == list(actions)
    writer = DemoWriter(tmp_path / "demos.jsonl")
    game = HumanGame(
        agent,
        "game",
        writer,
        system_prompt=agent.get_system_prompt,
        next_seed=lambda: 1,
        clock=lambda: datetime.now(UTC),
    )
    game.open()
    game.deal()
    for command in ("take key", "go north", "open chest"):
        game.act(next(choice.action for choice in game.choices if choice.name == command))
    assert (game.over, game.score) == (True, 1.0)


def test_the_guides_text_game_plays_a_file_of_textworlds_next_to_it(tmp_path: Path) -> None:
    pytest.importorskip("textworld")
    for file in made("tw-simple", TextWorldAgent.env_kwargs).parent.iterdir():
        shutil.copy(file, tmp_path / file.name.replace("game.", "my_game."))
    (tmp_path / "text_game.py").write_text(code_of("A text game"), encoding="utf-8")
    agent = find_agent(str(tmp_path / "text_game.py"))()
    assert agent.env_id == str(tmp_path / "my_game.z8")
    (episode,) = expert_episodes(agent, "game", episodes=1, seed=0, clock=lambda: datetime.now(UTC))
    assert (episode.episode_return, episode.length, episode.end) == (8.0, 9, "terminated")
    assert episode.messages[1]["content"].endswith(
        "Commands: " + ", ".join(episode.admissible[0]) + "."
    )
    assert [agent.read(message["content"]).action for message in episode.messages[2::2]] == list(
        episode.actions
    )
