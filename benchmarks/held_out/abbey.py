"""Abbey-v0: gather a candle and a flint, which lie elsewhere each time, and ignite the candle in the crypt.

Everything is in words. Which passage leads where is for the player to find out.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from llamagym_tui.agents.generic import GenericAgent

PASSAGES = {
    "cloister": ("refectory", "belfry", "courtyard"),
    "refectory": ("cloister", "crypt", "refectory"),
    "belfry": ("scriptorium", "cloister", "belfry"),
    "courtyard": ("scriptorium", "courtyard", "cloister"),
    "scriptorium": ("belfry", "crypt", "courtyard"),
    "crypt": ("refectory", "scriptorium", "crypt"),
}
"""Where arch, spiral and portcullis lead; to the same place where there is none."""
PLACES = tuple(PASSAGES)
CANDLE = ("belfry", "scriptorium", "satchel")
"""Where the candle can be; in the satchel it was gathered."""
FLINT = ("refectory", "courtyard", "satchel")
"""Where the flint can be; in the satchel it was gathered."""
SIZES = (len(PLACES), len(CANDLE), len(FLINT))
GATHER = 3
IGNITE = 4
MOST_TURNS = 30
STEP_COST = 0.02
"""What a turn costs."""
GATHERED = 0.2
"""What each thing gathered pays."""
IGNITED = 1.0
"""What the burning candle pays."""


class State(NamedTuple):
    place: int
    candle: int
    flint: int

    @property
    def number(self) -> int:
        return int(np.ravel_multi_index(self, SIZES))


class Move(NamedTuple):
    state: State
    reward: float
    is_over: bool


def move(state: State, action: int) -> Move:
    """What an action leads to; one that does nothing here is a lost turn."""
    here = PLACES[state.place]
    if action < GATHER:
        return Move(state._replace(place=PLACES.index(PASSAGES[here][action])), -STEP_COST, False)
    if action == IGNITE:
        burns = here == "crypt" and CANDLE[state.candle] == FLINT[state.flint] == "satchel"
        return Move(state, (IGNITED if burns else 0.0) - STEP_COST, burns)
    candle = 2 if CANDLE[state.candle] == here else state.candle
    flint = 2 if FLINT[state.flint] == here else state.flint
    gathered = (candle != state.candle) + (flint != state.flint)
    return Move(State(state.place, candle, flint), GATHERED * gathered - STEP_COST, False)


class AbbeyEnv(gymnasium.Env[Any, Any]):
    """Begins in any place, with both things to be gathered; ends with the burning candle."""

    def __init__(self) -> None:
        states = [State(*numbers) for numbers in product(*map(range, SIZES))]
        self.observation_space = spaces.Discrete(len(states))
        self.action_space = spaces.Discrete(5)
        self.P = {
            state.number: {action: [self._way(state, action)] for action in range(5)}
            for state in states
        }
        starts = np.array([state.candle < 2 and state.flint < 2 for state in states], float)
        self.initial_state_distrib = starts / starts.sum()
        self.state = 0

    def _way(self, state: State, action: int) -> tuple[float, int, float, bool]:
        to, reward, is_over = move(state, action)
        return 1.0, to.number, reward, is_over

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.choice(len(self.P), p=self.initial_state_distrib))
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        [(_, to, reward, is_over)] = self.P[self.state][int(action)]
        self.state = to
        return to, reward, is_over, False, {}


if "Abbey-v0" not in gymnasium.registry:
    gymnasium.register("Abbey-v0", entry_point=AbbeyEnv, max_episode_steps=MOST_TURNS)


class AbbeyAgent(GenericAgent):
    """Plays ``Abbey-v0``; an observation is place, candle and flint in one number."""

    history = 0
    env_id = "Abbey-v0"
    title = "Abbey"
    action_names = ("arch", "spiral", "portcullis", "gather", "ignite")
    baselines = {"random": -0.3394, "optimal": 1.2592}  # noqa: RUF012
    """Exact mean returns within 30 turns; ``python -m benchmarks.held_out.exact`` computes them."""

    def get_system_prompt(self) -> str:
        return (
            "You are a novice in an abbey. Ignite the candle in the crypt before the night ends. "
            'Reply with {"action": 0} to pass the arch, {"action": 1} to climb the spiral, {"action": 2} to pass the '
            'portcullis, {"action": 3} to gather or {"action": 4} to ignite.'
        )

    def format_observation(self, observation: Any) -> str:
        place, candle, flint = np.unravel_index(int(observation), SIZES)
        return f"You stand in the {PLACES[place]}. Candle: {CANDLE[candle]}. Flint: {FLINT[flint]}."
