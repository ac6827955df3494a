"""Lakes that are new each episode: which maps training meets, what is told of them, and what an evaluation plays on."""

from __future__ import annotations

from typing import Any

import pytest

from llamagym_tui.agents._lake_maps_env import is_held_out
from llamagym_tui.agents.frozen_lake_maps import FrozenLakeMapsAgent
from llamagym_tui.game.drawing import drawn
from llamagym_tui.game.environment import agent_env, evaluated_agent
from llamagym_tui.settings import RunConfig
from llamagym_tui.trainer import builders
from llamagym_tui.trainer.builders import Builders

AGENT = FrozenLakeMapsAgent()
LAKE = "".join(("SFHF", "FFFH", "HFHF", "FFFG"))


def maps_of(agent: Any, episodes: int) -> set[str]:
    env = agent_env(agent)
    return {env.reset(seed=seed)[0][0] for seed in range(episodes)}


def test_no_map_of_an_evaluation_is_ever_met_in_training() -> None:
    met, kept = maps_of(AGENT, 300), maps_of(evaluated_agent(AGENT), 300)
    assert len(met) > 100
    assert len(kept) > 50
    assert not any(map(is_held_out, met))
    assert all(map(is_held_out, kept))
    assert AGENT.env_kwargs == {"maps": "training"}, "the agent itself stays in training"


@pytest.mark.parametrize("held_out", [True, False])
def test_an_evaluation_plays_on_maps_that_are_held_out_and_a_match_where_the_person_plays(
    monkeypatch: pytest.MonkeyPatch, *, held_out: bool
) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(
        builders, "Rollout", lambda agent, *given, **named: made.update(agent=agent)
    )
    monkeypatch.setattr(builders, "evaluate", lambda *given, **named: None)
    config = RunConfig(agent="frozen_lake_maps", run_dir="")
    Builders(config).evaluate(AGENT, Any, episodes=1, greedy=True, held_out=held_out)  # type: ignore[arg-type]
    env = agent_env(made["agent"])
    met = [env.reset(seed=seed)[0][0] for seed in range(20)]
    env.close()
    assert {is_held_out(letters) for letters in met} == {held_out}


def test_the_map_is_told_with_the_walker_and_what_is_around() -> None:
    assert AGENT.format_observation((LAKE, 6)).split("\n") == [
        ". . O .",
        ". . X O",
        "O . O .",
        ". . . G",
        "You are at row 1, column 2: left ice, down hole, right hole, up hole.",
    ]
    assert drawn(AGENT, None, (LAKE, 6)).text.split("\n")[1] == " ·  · [·] O "


def test_the_expert_goes_by_the_map_that_it_is_on() -> None:
    other = "".join(("SFFF", "FFFF", "FFFF", "FFFG"))
    assert AGENT.first_actions((LAKE, 5)) == [1]
    assert AGENT.first_actions((other, 5)) == [1, 2]
