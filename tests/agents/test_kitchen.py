"""The kitchen: its errands worked by hand, its environment by its rules, and time in the discount."""

from __future__ import annotations

import gymnasium
import pytest

from benchmarks.world_baselines import exact
from llamagym_tui.agents.kitchen import (
    CHOP,
    HANDS,
    ON_PLATE,
    PLACES,
    PLATE,
    SERVE,
    THROW_AWAY,
    KitchenAgent,
    State,
    errand,
    state_of,
)

GET_TOMATO, GET_ONION = 0, 1
BOTH = ON_PLATE.index("tomato and onion")


def at(place: str, hands: str = "nothing", plate: str = "nothing", order: str = "tomato") -> State:
    return State(
        ON_PLATE.index(order), PLACES.index(place), HANDS.index(hands), ON_PLATE.index(plate)
    )


@pytest.mark.parametrize(
    ("state", "action", "to", "steps", "earned"),
    [
        # From the plate (3, 1) up to the tomatoes' stand (1, 1): two steps, and one to take it.
        (at("plate"), GET_TOMATO, at("tomatoes", "raw tomato"), 3, 0.0),
        (at("plate"), GET_ONION, at("onions", "raw onion"), 5, 0.0),
        # (1, 1) to (2, 3): three steps, and three to chop.
        (at("tomatoes", "raw tomato"), CHOP, at("board", "chopped tomato"), 6, 0.0),
        (at("board", "chopped tomato"), PLATE, at("plate", plate="tomato"), 4, 0.2),
        (at("board", "chopped onion"), PLATE, at("plate", plate="onion"), 4, 0.0),
        # From the bin to the plate: one step, one to take it, one to the hatch, one to serve.
        (at("bin", plate="tomato"), SERVE, at("hatch", plate="tomato"), 4, 1.0),
        (at("plate", plate="onion"), SERVE, at("hatch", plate="onion"), 3, 0.0),
        (at("onions", "raw onion"), THROW_AWAY, at("bin"), 4, 0.0),
        # What cannot be done is a lost step.
        (at("hatch"), SERVE, at("hatch"), 1, 0.0),
        (at("board", "chopped tomato"), CHOP, at("board", "chopped tomato"), 1, 0.0),
    ],
)
def test_an_errand_takes_the_way_and_the_work(
    state: State, action: int, to: State, steps: int, earned: float
) -> None:
    found = errand(state, action)
    assert (found.state, found.steps) == (to, steps)
    assert found.reward == pytest.approx(earned - 0.01 * steps)
    assert found.is_over == (action == SERVE and state.plate > 0)


def test_the_quickest_dish_by_hand() -> None:
    # Onion at the onions: 1; 1 to the board, 3 chopping; 3 to the plate, 1; then 1, 1 and 1.
    state, steps = at("onions", order="onion"), 0
    agent = KitchenAgent()
    while state.place != PLACES.index("hatch"):
        done = errand(state, agent.expert(state.number))
        state, steps = done.state, steps + done.steps
    assert steps == 12
    # Which vegetable comes first depends on where one stands.
    assert agent.expert(at("onions", order=ON_PLATE[BOTH]).number) == GET_ONION
    assert agent.expert(at("tomatoes", order=ON_PLATE[BOTH]).number) == GET_TOMATO
    assert agent.expert(at("board", "raw onion").number) == THROW_AWAY
    assert agent.expert(at("plate", plate="onion", order="tomato").number) == GET_TOMATO


def test_its_expert_is_optimal_and_the_baselines_are_exact() -> None:
    agent, env = KitchenAgent(), gymnasium.make(KitchenAgent.env_id)
    best = exact(env, lambda actions, state: max(actions))
    expert = exact(
        env,
        lambda actions, state: actions[agent.expert(state)],
    )
    assert expert == pytest.approx(best)
    by_chance = exact(env, lambda actions, state: sum(actions) / 6)
    assert agent.baselines == {"random": round(by_chance, 4), "optimal": round(best, 4)}


def test_an_episode_begins_with_free_hands_and_only_what_can_be_done_is_admissible() -> None:
    env = gymnasium.make(KitchenAgent.env_id)
    for seed in range(30):
        observation, info = env.reset(seed=seed)
        state = state_of(observation)
        assert (state.hands, state.plate, state.order > 0) == (0, 0, True)
        assert list(info["action_mask"]) == [1, 1, 0, 0, 0, 0]
    observation, reward, over, _, info = env.step(CHOP)
    assert (state_of(observation), reward, over) == (state, -0.01, False)
    assert (info["invalid_action"], info["action_steps"]) == (True, 1)
    observation, _, _, _, info = env.step(GET_ONION)
    assert list(info["action_mask"]) == [0, 0, 1, 0, 0, 1]
    assert info["action_steps"] == errand(state, GET_ONION).steps
