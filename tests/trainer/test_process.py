"""The trainer process before its libraries are loaded."""

from __future__ import annotations

from pathlib import Path

from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.trainer.__main__ import map_to_come
from tests import fakes


def test_the_map_of_an_agent_that_ships_is_laid_out_at_once(tmp_path: Path) -> None:
    [laid_out] = map_to_come(fakes.config(tmp_path, agent="frozen_lake"))
    assert isinstance(laid_out, PolicyMapLaidOut)
    assert laid_out.action_names == ["left", "down", "right", "up"]
    assert map_to_come(fakes.config(tmp_path, agent="textworld")) == []


def test_code_of_a_users_own_is_left_to_the_session(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text("raise RuntimeError\n")
    assert map_to_come(fakes.config(tmp_path, agent=str(agent))) == []
