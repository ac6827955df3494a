"""Gymnasium's vector environments, as `Agent` plays them: a list of observations in, the episodes that ended out.

Knows the three autoreset modes: where an environment resets in the step after its last, that step is no turn; where it
resets in the same step, its last observation lies in the infos; where it does not reset, that is the caller's to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate
from numpy.typing import ArrayLike

from llamagym_tui.errors import EnvError


class EpisodeEnd(NamedTuple):
    """An episode that ended in the last step; its fields are `Agent.terminate_episode`'s arguments."""

    env: int
    """Index of the environment."""
    truncated: bool
    """Whether it was cut off, and not over."""
    final_observation: Any
    """What the environment showed last, before any reset."""


class VectorEpisodes:
    """Where turns are taken and episodes end in one vector environment.

    ``agent.act(episodes.turns(observations))`` before each ``envs.step``, ``episodes.ends(*step)`` after it.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        """For environments that were reset; their mode, if unknown, is Gymnasium's default, the next step."""
        self._envs = envs
        self._mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._resets_next = np.zeros(envs.num_envs, dtype=bool)

    def turns(self, observations: Any) -> list[Any]:
        """One observation for each environment; None where it will only reset, whatever the action."""
        split = iterate(self._envs.observation_space, observations)
        return [None if resets else seen for seen, resets in zip(split, self._resets_next, strict=True)]

    def ends(
        self,
        observations: Any,
        rewards: ArrayLike,
        terminations: ArrayLike,
        truncations: ArrayLike,
        infos: Mapping[str, Any],
    ) -> list[EpisodeEnd]:
        """The episodes that ended in a step, from what ``envs.step`` returned.

        Raises:
            EnvError: an environment reset in the same step and left no final observation.
        """
        terminated, truncated = np.asarray(terminations, dtype=bool), np.asarray(truncations, dtype=bool)
        over = terminated | truncated
        if self._mode is AutoresetMode.NEXT_STEP:
            self._resets_next = over
        if not over.any():
            return []
        shown = self._last_shown(observations, infos)
        return [
            EpisodeEnd(env, bool(truncated[env] & ~terminated[env]), shown[env])
            for env in np.flatnonzero(over).tolist()
        ]

    def _last_shown(self, observations: Any, infos: Mapping[str, Any]) -> Any:
        if self._mode is not AutoresetMode.SAME_STEP:
            return list(iterate(self._envs.observation_space, observations))
        if "final_obs" not in infos:
            raise EnvError("The vector environment resets in the same step and has no final_obs in its infos.")
        return infos["final_obs"]
