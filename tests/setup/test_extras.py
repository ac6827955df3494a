"""An agent names the extra that its environment needs; the module that the extra brings may have another name."""

from __future__ import annotations

import pytest

from llamagym_tui.agent import Agent
from llamagym_tui.setup import catalog
from llamagym_tui.setup.extras import EXTRAS, module_of


class Puzzles(Agent):
    extra = "serve"


class Mine(Agent):
    extra = "my_package"


def test_an_agents_extra_is_there_if_the_module_that_it_brings_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "find_spec", lambda name: name == "textual_serve" or None)
    assert catalog.missing(Puzzles) == ""
    monkeypatch.setattr(catalog, "find_spec", lambda name: name == "serve" or None)
    assert catalog.missing(Puzzles) == "pip install 'llamagym-tui[serve]'"


def test_an_extra_that_is_not_ours_is_the_module_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "find_spec", lambda name: name == "my_package" or None)
    assert catalog.missing(Mine) == ""
    assert module_of("my_package") == "my_package"
    monkeypatch.setattr(catalog, "find_spec", lambda name: None)
    assert catalog.missing(Mine) == "pip install my_package"


def test_every_agent_that_ships_names_an_extra_of_the_table() -> None:
    named = {agent.extra for agent in catalog.built_in().values()} - {""}
    assert named <= EXTRAS.keys()
