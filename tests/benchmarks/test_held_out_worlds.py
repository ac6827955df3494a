from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import benchmarks.held_out
from benchmarks.held_out import WANTED, abbey, greenhouse, tide
from benchmarks.held_out.exact import (
    abbey_return,
    best,
    by_chance,
    greenhouse_return,
    memoryless_tide,
)
from benchmarks.world_baselines import played
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import agent_env
from llamagym_tui.game.observed import observed
from llamagym_tui.setup import catalog

FOLDER = Path(benchmarks.held_out.__file__).parent
RECIPE = FOLDER.parents[1] / "scripts" / "bundled_model"
SHOWN = {
    "greenhouse": greenhouse.GreenhouseAgent.observation_names,
    "abbey": (*abbey.PLACES, "candle", "flint", "satchel"),
    "tide": ("gauge",),
}
"""What observations name, by world."""
WORLDS = sorted(SHOWN)


def agent_of(world: str) -> AgentBase:
    return catalog.find_agent(str(FOLDER / f"{world}.py"))()


@pytest.mark.parametrize("world", WORLDS)
def test_a_held_out_world_keeps_gymnasiums_rules(world: str) -> None:
    check_env(gymnasium.make(agent_of(world).env_id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("world", WORLDS)
def test_no_lesson_knows_the_names_of_a_held_out_world(world: str) -> None:
    texts = " ".join(path.read_text("utf-8").lower() for path in RECIPE.glob("*.py"))
    lessons = set(re.findall(r"[a-z]+", texts))
    assert {"left", "hit"} <= lessons
    assert not lessons & {*agent_of(world).action_names, *SHOWN[world]}


@pytest.mark.parametrize("world", WORLDS)
def test_an_episode_of_a_held_out_world_has_at_most_thirty_turns(world: str) -> None:
    env = agent_env(agent_of(world))
    env.reset(seed=0)
    ends = [any(env.step(0)[2:4]) for _ in range(30)]
    assert any(ends)


def test_a_greenhouse_is_a_wording_of_four_numbers() -> None:
    agent = agent_of("greenhouse")
    assert (
        observed(agent, np.array([40, 7, 15, 99]), {}).text
        == "Observation: humidity 40, warmth 7, bloom 15, pollen 99"
    )
    assert agent.history == 0
    assert '{"action": 2} (snip)' in agent.get_system_prompt()


def test_an_abbey_is_described_in_words() -> None:
    text = agent_of("abbey").format_observation(abbey.State(place=1, candle=2, flint=0).number)
    assert text == "You stand in the refectory. Candle: satchel. Flint: refectory."


def test_a_gauge_is_shown_and_the_turn_before_stays_in_the_prompt() -> None:
    agent = agent_of("tide")
    assert agent.format_observation(np.array([47])) == "The gauge stands at 47."
    assert agent.history == 1


def test_a_flower_grows_where_it_is_humid_and_not_too_warm_and_pays_by_its_size() -> None:
    now = greenhouse.Greenhouse(humidity=50, warmth=50, bloom=30)
    assert greenhouse.after(now, greenhouse.MIST, 4, 4) == (76, 54, 30)
    assert greenhouse.after(now, greenhouse.VENT, 4, 4) == (38, 24, 45)
    assert greenhouse.after(now, greenhouse.SNIP, 12, 12) == (38, 62, 0)
    assert [float(greenhouse.reward(bloom, greenhouse.SNIP)) for bloom in (15, 30, 90)] == [
        0.0,
        0.6,
        1.8,
    ]
    assert greenhouse.reward(90, greenhouse.VENT) == 0


def test_the_candle_burns_in_the_crypt_alone_once_both_things_are_gathered() -> None:
    state = abbey.State(place=0, candle=1, flint=1)
    rewards = []
    for action in (2, 3, 0, 3, 4, 1, 4):  # portcullis, gather, arch, gather, ignite, spiral, ignite
        state, reward, is_over = abbey.move(state, action)
        rewards.append(round(reward, 2))
    assert rewards == [-0.02, 0.18, -0.02, 0.18, -0.02, -0.02, 0.98]
    assert is_over


def test_the_gauge_pays_for_what_is_right_about_the_turn_before() -> None:
    env = tide.TideEnv()
    seen = [int(env.reset(seed=3)[0][0])]
    total = 0.0
    for turn in range(tide.JUDGED + 1):
        ebbs = len(seen) > 1 and seen[-1] < seen[-2]
        observation, reward, ends, _, _ = env.step(int(ebbs))
        assert reward == (1.0 if turn else 0.0)
        seen, total = [*seen, int(observation[0])], total + reward
    assert (total, ends) == (6.0, True)


def test_stated_returns_are_the_exact_ones_and_far_enough_apart() -> None:
    found = {
        "greenhouse": {"random": greenhouse_return(by_chance), "optimal": greenhouse_return(best)},
        "abbey": {"random": abbey_return(by_chance), "optimal": abbey_return(best)},
        "tide": {"random": 0.0, "memoryless": memoryless_tide(), "optimal": 6.0},
    }
    for world, values in found.items():
        assert agent_of(world).baselines == pytest.approx(values, abs=1e-4)
    tides = found["tide"]
    assert WANTED * tides["optimal"] > tides["memoryless"] + 1  # without memory it is missed


def test_random_play_has_the_stated_mean_return() -> None:
    for world in WORLDS:
        agent = agent_of(world)
        env: Any = agent_env(agent)
        mean, error = played(env, lambda observation, info, env=env: env.action_space.sample(), 400)
        assert abs(mean - agent.baselines["random"]) < 4 * error


def test_play_by_the_rules_has_the_stated_optimum_in_the_greenhouse() -> None:
    """By the dynamic programme's own choice in each turn."""
    worths: list[Any] = []
    greenhouse_return(lambda worth: (worths.append(np.argmax(worth, axis=0)), best(worth))[1])
    env, turn = agent_env(agent_of("greenhouse")), iter(())

    def act(observation: Any, info: Any) -> int:
        nonlocal turn
        choice = next(turn, None)
        if choice is None:
            turn = reversed(worths)
            choice = next(turn)
        humidity, warmth, bloom, _ = observation
        return int(choice[humidity, warmth, bloom // greenhouse.GROWTH])

    mean, error = played(env, act, 400)
    assert abs(mean - 4.1153) < 4 * error
