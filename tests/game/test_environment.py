"""An environment is made as its agent plays it, and tried once for text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import pytest

from llamagym_tui.agents.generic import GenericAgent
from llamagym_tui.errors import EnvError
from llamagym_tui.game.environment import EnvMaker, agent_env, episode_seed
from tests.toy_env import CountAgent, made_by


class Rendered(gymnasium.Env[int, int]):
    """Renders text, unless told that it cannot."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode


class Player(GenericAgent):
    env_id = "Rendered-v0"


@pytest.mark.parametrize(
    ("can_render", "modes"), [(True, [None, "ansi", "ansi"]), (False, [None, "ansi", None])]
)
def test_whether_text_is_rendered_is_tried_once(can_render: bool, modes: list[Any]) -> None:
    asked = []

    def make(env_id: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        asked.append(env_kwargs.get("render_mode"))
        if asked[-1] and not can_render:
            raise EnvError("no display")
        return Rendered(**env_kwargs)

    maker = EnvMaker(Player())
    with made_by(make):
        made = [maker(), maker()]
    assert asked == modes
    assert [env.render_mode for env in made] == modes[2:] * 2


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("left", "Left"), "'left' and 'Left' are read as the same one"),
        (("left", " left\u200b"), "are read as the same one"),
        ((" 1", "0"), "which is the number of another one"),
    ],
)
def test_names_that_are_read_as_another_action_are_refused(names: Any, words: str) -> None:
    agent = type("Alike", (CountAgent,), {"action_names": names})()
    with pytest.raises(EnvError, match=words):
        agent_env(agent)


def test_every_seed_of_an_episode_fits_into_31_bits() -> None:
    seeds = [episode_seed(1, episode) for episode in range(200)]
    assert len(set(seeds)) == 200
    assert 2**30 < max(seeds) < 2**31
