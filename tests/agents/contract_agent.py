"""What every agent keeps: the suite runs on each built-in agent, and on a generic one."""

from __future__ import annotations

import math
import random
from typing import Any

import gymnasium
import pytest

from llamagym_tui.agent import Agent
from llamagym_tui.game.drawing import drawn
from llamagym_tui.game.environment import make_env
from llamagym_tui.game.observed import action_named, called, observed
from llamagym_tui.setup import catalog
from llamagym_tui.trainer.map_layout import lay_out

AGENTS = {name: agent for name, agent in catalog.built_in().items() if not catalog.missing(agent)}
AGENTS["CartPole-v1"] = catalog.find_agent("CartPole-v1")
STEPS = 20


@pytest.fixture(params=sorted(AGENTS))
def agent(request: pytest.FixtureRequest) -> Agent:
    return AGENTS[request.param]()


def actions_of(agent: Agent) -> range:
    return range(len(catalog.action_names(type(agent))))


def env_of(agent: Agent) -> gymnasium.Env[Any, Any]:
    return make_env(agent.env_id, agent.env_kwargs)


def observations_of(agent: Agent) -> list[tuple[Any, dict[str, Any]]]:
    """What the environment shows over some random steps, each with its info."""
    env, rng = env_of(agent), random.Random(3)
    env.action_space.seed(3)
    shown = [env.reset(seed=3)]
    for _ in range(STEPS):
        names = observed(agent, *shown[-1]).actions
        action = action_named(agent, rng.choice(names)) if names else env.action_space.sample()
        observation, _, terminated, truncated, info = env.step(action)
        shown.append(env.reset() if terminated or truncated else (observation, info))
    env.close()
    return shown


def test_its_environment_takes_each_of_its_actions(agent: Agent) -> None:
    env = env_of(agent)
    for action in actions_of(agent):
        env.reset(seed=action)
        _, reward, _, _, _ = env.step(action)
        assert math.isfinite(float(reward))
    env.close()


def test_its_actions_are_all_that_the_environment_has(agent: Agent) -> None:
    env = env_of(agent)
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        assert len(actions_of(agent)) == env.action_space.n
    else:
        assert all(observed(agent, *shown).actions for shown in observations_of(agent))
    env.close()


def test_a_name_that_is_admissible_reads_back_from_its_reply(agent: Agent) -> None:
    for shown in observations_of(agent):
        for name in observed(agent, *shown).actions or ():
            assert agent.read(
                agent.format_action(action_named(agent, name))
            ).action == action_named(agent, name)


def test_its_canonical_reply_reads_as_the_action(agent: Agent) -> None:
    for action in actions_of(agent):
        assert agent.read(agent.format_action(action)).action == action


def test_canonical_replies_differ(agent: Agent) -> None:
    replies = {agent.format_action(action) for action in actions_of(agent)}
    assert len(replies) == len(actions_of(agent))


def test_a_reply_about_nothing_names_no_action(agent: Agent) -> None:
    assert agent.read("").failed
    assert agent.read("The weather is fine.").failed == bool(
        actions_of(agent)
    )  # any other text is a command


def test_its_prompt_names_each_action(agent: Agent) -> None:
    prompt = agent.get_system_prompt().lower()
    for index, name in enumerate(catalog.action_names(type(agent))):
        assert name.lower() in prompt
        assert agent.format_action(index) in prompt


def test_it_tells_every_observation_in_literal_text(agent: Agent) -> None:
    for shown in observations_of(agent):
        text = observed(agent, *shown).text
        assert isinstance(text, str)
        assert text.strip()
        for trace in ("array(", "np.", "object at 0x"):
            assert trace not in text


def test_its_drawing_is_some_short_lines_of_plain_text(agent: Agent) -> None:
    for shown in observations_of(agent):
        called(agent.draw, shown[0], {"info": shown[1]})  # what fails is not shown, and fails here
        lines = drawn(agent, None, *shown).text.split("\n")
        assert len(lines) <= 10
        assert all(len(line) <= 60 and line.isprintable() for line in lines)


def test_it_tells_different_observations_differently(agent: Agent) -> None:
    assert len({observed(agent, *shown).text for shown in observations_of(agent)}) > 1


def test_its_keys_take_each_action_once(agent: Agent) -> None:
    if agent.action_keys:
        assert sorted(agent.action_keys.values()) == list(actions_of(agent))
        assert all(len(key) == 1 or key.isidentifier() for key in agent.action_keys)


def test_its_fallback_is_an_action(agent: Agent) -> None:
    assert agent.fallback_action in (actions_of(agent) or ["look"])


def test_its_policy_map_can_be_laid_out_and_its_best_actions_are_actions(agent: Agent) -> None:
    policy_map = agent.policy_map()
    if policy_map is None:
        return
    laid_out = lay_out(agent, policy_map)
    cells = [cell for panel in laid_out.panels for row in panel.cells for cell in row]
    assert any(cell.is_state for cell in cells)
    assert all(action in actions_of(agent) for cell in cells for action in cell.best)
    assert len(laid_out.signs) == len(actions_of(agent))
    states = [(cell.words, cell.action) for cell in cells if cell.is_state]
    assert len(set(states)) == len(states)
