"""The guide's file for a text game plays one that has the interface which the guide names."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from llamagym_tui.demos.human_game import HumanGame
from llamagym_tui.demos.writer import DemoWriter
from llamagym_tui.game.observed import observed, reply_of
from llamagym_tui.setup.catalog import find_agent
from tests.text_env import ROOMS, ChestEnv

GUIDE = Path(__file__).parents[2] / "docs" / "GUIDE.md"


def test_the_guides_text_game_names_reads_and_plays_admissible_commands(tmp_path: Path) -> None:
    section = GUIDE.read_text(encoding="utf-8").split("## A text game")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    assert len(code.splitlines()) < 30
    (tmp_path / "text_game.py").write_text(code.replace("my_games:TextGame-v0", "LlamaChest-v0"), encoding="utf-8")
    agent = find_agent(str(tmp_path / "text_game.py"))()
    text, actions = observed(agent, *ChestEnv().reset())
    assert (text, actions) == ("You are in a hall.\nCommands: take key, go north.", tuple(ROOMS["hall"][1]))
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
