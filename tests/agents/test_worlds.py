"""The worlds that ship: their words are true, their experts play as they say, their baselines are measured."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks.world_baselines import exact
from llamagym_tui.agents import acrobot, cart_pole, mountain_car, taxi
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.drawing import drawn
from llamagym_tui.game.environment import agent_env
from llamagym_tui.setup import catalog

LAKES = ["frozen_lake", "frozen_lake_8x8", "frozen_lake_slippery"]
TABLES = ["cliff_walking", "taxi", *LAKES]


def made(name: str) -> tuple[AgentBase, gymnasium.Env[Any, Any]]:
    agent = catalog.find_agent(name)()
    return agent, agent_env(agent)


@cache
def worth(name: str) -> np.ndarray:
    """(states, actions) of Gymnasium's own table, by value iteration with a discount of 0.99."""
    table = made(name)[1].unwrapped.P
    values = np.zeros(len(table))
    for _ in range(600):
        found = np.array(
            [
                [sum(p * (reward + 0.99 * (not ended) * values[to]) for p, to, reward, ended in table[state][action])
                 for action in table[state]]
                for state in table
            ]
        )  # fmt: skip
        if np.allclose(values, found.max(1), atol=1e-10):
            break
        values = found.max(1)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_what_an_expert_advises_is_all_that_is_best(name: str) -> None:
    agent: Any = made(name)[0]
    advised = 0
    for state, row in enumerate(worth(name)):
        if best := agent.first_actions(state):
            assert best == [action for action, value in enumerate(row) if value > row.max() - 1e-6]
            assert agent.expert(state) == best[0]
            advised += 1
    assert advised == {"cliff_walking": 48, "taxi": 500, "frozen_lake_8x8": 53}.get(name, 11)


@pytest.mark.parametrize("name", ["cliff_walking", *LAKES])
def test_every_step_leads_to_what_the_words_say(name: str) -> None:
    agent: Any = made(name)[0]
    table = agent_env(catalog.find_agent(name, {"is_slippery": False})()).unwrapped.P
    for state in [state for state in table if agent.first_actions(state) and state < 37]:
        around = agent.format_observation(state).rstrip(".").split(": ")[1].split(", ")
        for action, words in enumerate(around):
            [(_, to, reward, ended)] = table[state][action]
            name_of_action, what = words.split()
            assert name_of_action == agent.action_names[action]
            assert (to == state) == (what == "edge" or (what == "cliff" and state == 36))
            assert ended == (what in ("hole", "goal"))
            assert (reward == -100) == (what == "cliff")


def test_a_taxis_state_in_words() -> None:
    agent = taxi.TaxiAgent()
    assert agent.format_observation(((2 * 5 + 3) * 5 + 0) * 4 + 3) == (
        "Taxi at row 2, column 3: south road, north road, east road, west road. Passenger at red, row 0, column 0. "
        "Destination blue, row 4, column 3."
    )
    assert agent.format_observation(((0 * 5 + 1) * 5 + 4) * 4 + 1) == (
        "Taxi at row 0, column 1: south road, north wall, east wall, west road. Passenger in the taxi. "
        "Destination green, row 0, column 4."
    )
    assert drawn(agent, None, ((0 * 5 + 1) * 5 + 4) * 4 + 1).text.split("\n") == [
        "│ R  [@]│ ·   ·  >G<│",
        "│ ·   · │ ·   ·   · │",
        "│ ·   ·   ·   ·   · │",
        "│ · │ ·   · │ ·   · │",
        "│ Y │ ·   · │ B   · │",
        "[@] passenger in the taxi",
        "> < destination green",
    ]
    waits = drawn(agent, None, ((1 * 5 + 3) * 5 + 0) * 4 + 2)
    assert waits.text.split("\n")[0] == "│(R)  · │ ·   ·   G │"
    assert waits.text.split("\n")[4:6] == ["│>Y<│ ·   · │ B   · │", "( ) passenger at red"]
    on_ground = {ground: waits.text[start:stop] for start, stop, ground in waits.grounds}
    assert (on_ground["thing"], on_ground["player"], on_ground["goal"]) == ("(R)", "[T]", ">Y<")


@pytest.mark.parametrize(
    ("name", "player"),
    [
        ("cliff_walking", "optimal"),
        ("cliff_walking", "random"),
        pytest.param("taxi", "optimal", marks=pytest.mark.slow),
    ]
    + [(lake, player) for lake in LAKES for player in ("random", "optimal")],
)
def test_exact_baselines_are_those_of_dynamic_programming(name: str, player: str) -> None:
    agent, env = made(name)
    value = exact(
        env, lambda actions, state: max(actions) if player == "optimal" else float(np.mean(actions))
    )
    assert agent.baselines[player] == pytest.approx(value, rel=1e-3, abs=5e-5)


def test_numbers_of_continuous_worlds_are_levels_of_their_ranges() -> None:
    pole = cart_pole.CartPoleAgent()
    assert pole.format_observation([0, -3, 0.1, 9]) == "Position 50, speed 0, angle 73, spin 99."
    assert (
        mountain_car.MountainCarAgent().format_observation([-1.2, 0.07]) == "Position 0, speed 99."
    )
    up = [-1, 0, 0, 1, -8, 0]  # the first link straight up, the second one to the side
    assert (
        acrobot.AcrobotAgent().format_observation(up)
        == "Angle 99, spin 0, joint 75, joint spin 50."
    )


def test_the_links_of_an_acrobot_are_drawn_where_their_angles_say() -> None:
    to_the_right = acrobot.AcrobotAgent().draw([0, 1, 1, 0, 0, 0])
    assert to_the_right[5].strip() == "+⠉⠉⠉⠉o⠉⠉⠉O"
    bent_up = acrobot.AcrobotAgent().draw([0, 1, 0, 1, 0, 0])
    assert bent_up[5].strip() == "+⠉⠉⠉⠉o"
    assert bent_up[2].index("O") == bent_up[5].index("o") == 17


@pytest.mark.parametrize(("name", "steps"), [("acrobot", 3), ("mountain_car", 4), ("cart_pole", 1)])
def test_an_action_is_held_for_the_agents_steps_and_their_rewards_are_summed(
    name: str, steps: int
) -> None:
    agent, env = made(name)
    plain = gymnasium.make(agent.env_id)
    plain.reset(seed=3)
    for _ in range(steps):
        observation, *_ = plain.step(1)
    env.reset(seed=3)
    held, reward, *_ = env.step(1)
    assert held.tolist() == observation.tolist()
    assert abs(float(reward)) == steps
