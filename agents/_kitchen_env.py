"""The kitchen as a Gymnasium environment, with its table of transitions; its rules are in `kitchen`."""

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
        self.observation_space, self.action_space = (
            spaces.Discrete(len(self.every)),
            spaces.Discrete(len(PLACES)),
        )
        self.P = {
            state.number: {action: [self._way(state, action)] for action in range(len(PLACES))}
            for state in self.every
        }
        starts = np.array(
            [state.order > 0 and not (state.hands or state.plate) for state in self.every], float
        )
        self.initial_state_distrib = starts / starts.sum()
        self.state = self.every[0]

    def _way(self, state: State, action: int) -> tuple[float, int, float, bool]:
        to, _, reward, is_over = errand(state, action)
        return 1.0, to.number, reward, is_over

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.every[
            self.np_random.choice(len(self.every), p=self.initial_state_distrib)
        ]
        return self.state.number, self._info(True, 1)

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        is_possible = self.state.possible[action]
        self.state, steps, reward, is_over = errand(self.state, int(action))
        return self.state.number, reward, is_over, False, self._info(is_possible, steps)

    def _info(self, was_possible: bool, steps: int) -> dict[str, Any]:
        mask = np.array(self.state.possible, dtype=np.int8)
        return {"action_mask": mask, "action_steps": steps, "invalid_action": not was_possible}


gymnasium.register("Kitchen-v0", entry_point=f"{__name__}:Kitchen", max_episode_steps=MOST_TURNS)
