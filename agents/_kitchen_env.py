"""The kitchen as a Gymnasium environment, with a table of all its transitions; its rules are in `kitchen`."""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from llamagym_tui.agents.kitchen import PLACES, SIZES, errand, state_of

MOST_TURNS = 20


class Kitchen(gymnasium.Env[Any, Any]):
    """An episode begins anywhere, with free hands, an empty plate and an order, and ends with what is served."""

    def __init__(self) -> None:
        every = [state_of(number) for number in range(math.prod(SIZES))]
        self.observation_space = spaces.Discrete(len(every))
        self.action_space = spaces.Discrete(len(PLACES))
        self.P: dict[int, dict[int, list[tuple[float, int, float, bool]]]] = {}
        """For each state and action, the probability, the next state, the reward and whether that ends the episode, as
        in Gymnasium's own tabular environments."""
        for state in every:
            self.P[state.number] = {}
            for action in range(len(PLACES)):
                done = errand(state, action)
                after = (1.0, done.state.number, done.reward, done.is_over)
                self.P[state.number][action] = [after]
        starts = [state.order > 0 and state.hands == 0 and state.plate == 0 for state in every]
        self.initial_state_distrib = np.array(starts) / sum(starts)
        """Probability that an episode begins in each state."""
        self.state = every[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        chances = self.initial_state_distrib
        self.state = state_of(self.np_random.choice(len(chances), p=chances))
        return self.state.number, self._info(True, 1)

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        was_possible = self.state.possible[action]
        done = errand(self.state, int(action))
        self.state = done.state
        info = self._info(was_possible, done.steps)
        return self.state.number, done.reward, done.is_over, False, info

    def _info(self, was_possible: bool, steps: int) -> dict[str, Any]:
        mask = np.array(self.state.possible, dtype=np.int8)
        return {"action_mask": mask, "action_steps": steps, "invalid_action": not was_possible}


gymnasium.register("Kitchen-v0", entry_point=f"{__name__}:Kitchen", max_episode_steps=MOST_TURNS)
