"""Gymnasium's vector environments, as `Agent` plays them: a list of observations in, the episodes that ended out.

It handles the three autoreset modes. With a reset in the next step, that step is no turn. With a reset in the same
step, the last observation is in the infos. With resets disabled, the caller resets.
"""

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
    """Whether a limit cut it off and the environment did not end it."""
    final_observation: Any
    """What the environment showed last, before any reset."""


class VectorEpisodes:
    """The turns and the ends of episodes in one vector environment.

    ``agent.act(episodes.turns(observations))`` before each ``envs.step``, ``episodes.ends(*step)`` after it. For agents
    that take info, ``episodes.infos(infos)`` is what `Agent.act` and `Agent.assign_reward` take next to the list, and
    ``episodes.infos(infos)[env]`` is the ``final_info`` of `Agent.terminate_episode`.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        """For environments that were reset; the mode is in their metadata, else Gymnasium's default (next step)."""
        self._envs = envs
        self._mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._resets_next = np.zeros(envs.num_envs, dtype=bool)

    def turns(self, observations: Any) -> list[Any]:
        """One observation for each environment; None where the next step only resets it, whatever the action."""
        split = iterate(self._envs.observation_space, observations)
        return [
            None if resets else seen for seen, resets in zip(split, self._resets_next, strict=True)
        ]

    def infos(self, infos: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The info of each environment, from Gymnasium's of all, which has a mask ``_key`` for each key."""
        return [_info_of(infos, env) for env in range(self._envs.num_envs)]

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
        terminated, truncated = (
            np.asarray(terminations, dtype=bool),
            np.asarray(truncations, dtype=bool),
        )
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
            raise EnvError(
                "The vector environment resets in the same step and has no final_obs in its infos."
            )
        return infos["final_obs"]


def _info_of(infos: Mapping[str, Any], env: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, mask in infos.items():
        if key.startswith("_") and key[1:] in infos and mask[env]:
            value = infos[key[1:]]
            found[key[1:]] = _info_of(value, env) if isinstance(value, Mapping) else value[env]
    return found
