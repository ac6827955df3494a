"""The kitchen as a Gymnasium environment, with a table of all its transitions; its rules are in `kitchen`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from llamagym_tui.agents.kitchen import PLACES, State, errand, states

MOST_TURNS = 20


class Kitchen(gymnasium.Env[Any, Any]):
    """An episode begins anywhere, with free hands, an empty plate and an order, and ends with what is served."""

    def __init__(self) -> None:
        self.every = states()
        """Every state, in the order of their numbers."""
        self.observation_space = spaces.Discrete(len(self.every))
        self.action_space = spaces.Discrete(len(PLACES))
        self.P = {
            state.number: {action: [_transition(state, action)] for action in range(len(PLACES))}
            for state in self.every
        }
        """For each state and action, the probability, the next state, the reward and whether that ends the episode; in
        the form of Gymnasium's own tabular environments."""
        is_a_start = [
            state.order > 0 and state.hands == 0 and state.plate == 0 for state in self.every
        ]
        starts = np.array(is_a_start, float)
        self.initial_state_distrib = starts / starts.sum()
        """Probability that an episode begins in each state."""
        self.state = self.every[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.every[
            self.np_random.choice(len(self.every), p=self.initial_state_distrib)
        ]
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


def _transition(state: State, action: int) -> tuple[float, int, float, bool]:
    """Where an action leads, for certain: probability, number of the next state, reward, whether that is the end."""
    done = errand(state, action)
    return 1.0, done.state.number, done.reward, done.is_over


gymnasium.register("Kitchen-v0", entry_point=f"{__name__}:Kitchen", max_episode_steps=MOST_TURNS)
