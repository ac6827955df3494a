"""The mean return of a policy follows from the transitions of its environment."""

from __future__ import annotations

import random
import statistics
from typing import Any

import gymnasium
import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.cliff_walking import CliffWalkingAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.agents.frozen_lake_maps import FrozenLakeMapsAgent
from llamagym_tui.agents.frozen_lake_slippery import SlipperyFrozenLakeAgent
from llamagym_tui.agents.kitchen import KitchenAgent
from llamagym_tui.agents.taxi import TaxiAgent, possible
from llamagym_tui.game.pictures import Landmark
from llamagym_tui.setup import catalog


def even(agent: Any) -> dict[Any, list[float]]:
    """Every action as probable as the others, in each state of the agent's map."""
    count = len(agent.action_names)
    return {
        state: [1 / count] * count
        for panel in agent.policy_map().panels
        for row in panel.states
        for state in row
        if not isinstance(state, Landmark)
    }


def test_a_walk_of_two_fields_is_worth_what_one_reckons_by_hand() -> None:
    """One way leads to the goal, the three others stay on the field: the chance of `turns` is 1 - 0.75 ** turns."""
    agent = FrozenLakeAgent()
    agent.env_kwargs = {"desc": ["SG"], "is_slippery": False}
    assert agent.mean_return({0: [0.25] * 4}, 1) == pytest.approx(0.25)
    assert agent.mean_return({0: [0.25] * 4}, 3) == pytest.approx(1 - 0.75**3)
    assert agent.mean_return({0: [0.25, 0.25, 0.5, 0.0]}, 2) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("agent", "turns"),
    [
        (BlackjackAgent(), 200),
        (FrozenLakeAgent(), 100),
        (SlipperyFrozenLakeAgent(), 100),
        (CliffWalkingAgent(), 200),
    ],
)
def test_random_play_earns_the_published_baseline(agent, turns: int) -> None:
    assert agent.mean_return(even(agent), turns) == pytest.approx(
        agent.baselines["random"], rel=0.01
    )


def test_a_policy_that_never_ends_is_worth_what_it_earns_until_it_is_cut_off() -> None:
    agent = CliffWalkingAgent()
    up = {state: [1.0, 0.0, 0.0, 0.0] for state in even(agent)}
    assert agent.mean_return(up, 200) == -200.0
    assert agent.mean_return(up, 7) == -7.0


def test_a_mixed_policy_of_hands_is_worth_what_its_hands_earn_on_average() -> None:
    """25,000 hands of a policy that differs in each state: a mean is within 4 standard errors, 0.024."""
    draw = random.Random(3)
    agent = BlackjackAgent()
    shares = {state: [1 - hit, hit] for state in even(agent) for hit in [draw.random()]}
    env = gymnasium.make(agent.env_id, **agent.env_kwargs)
    env.reset(seed=3)
    returns = []
    for _ in range(25_000):
        state, _ = env.reset()
        is_over = False
        while not is_over:
            hits = draw.random() < shares[state][1]
            state, reward, is_over, _, _ = env.step(int(hits))
        returns.append(float(reward))
    value = agent.mean_return(shares, 200)
    assert value == pytest.approx(statistics.mean(returns), abs=0.024)


def test_a_map_without_states_that_are_met_has_no_mean_return() -> None:
    lake = FrozenLakeAgent()
    shares = even(lake)
    del shares[14]
    assert lake.mean_return(shares, 100) is None
    assert lake.mean_return(shares, 5) == 0.0  # nobody comes so far in five turns
    hands = even(BlackjackAgent())
    del hands[21, 10, 1]
    assert BlackjackAgent().mean_return(hands, 200) is None
    assert KitchenAgent().mean_return(even(KitchenAgent()), 20) is None
    assert FrozenLakeMapsAgent().mean_return({}, 100) is None


def test_taxis_map_has_every_state_so_that_a_policys_mean_return_is_exact() -> None:
    assert len(even(TaxiAgent())) == 400
    random_return = TaxiAgent().mean_return(even(TaxiAgent()), 200)
    assert random_return == pytest.approx(TaxiAgent.baselines["random"], abs=0.05)


def test_taxis_map_knows_the_actions_that_the_environment_rules_out() -> None:
    env = gymnasium.make("Taxi-v4").unwrapped
    for state in even(TaxiAgent()):
        mask = env.action_mask(state)  # type: ignore[attr-defined]
        assert sorted(possible(state)) == [action for action in range(6) if mask[action]]


@pytest.mark.parametrize("rule", ["natural", "sab"])
def test_blackjack_by_other_rules_has_no_mean_return(rule: str) -> None:
    agent = catalog.find_agent("blackjack", {rule: True})()
    assert agent.mean_return(even(agent), 200) is None
