"""Gymnasium's vector environments for `Agent`, which acts on a list of observations and is told which episodes ended.

It handles Gymnasium's three autoreset modes. With a reset in the next step, that step is no turn. With a reset in the
same step, the last observation is in the infos. With resets disabled, the caller resets.
"""

import copy
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
    """True if a limit cut it off."""
    final_observation: Any
    """The environment's last observation, before any reset."""


class VectorEpisodes:
    """The turns and the ends of episodes in one vector environment.

    ``agent.act(episodes.turns(observations))`` before each ``envs.step``, ``episodes.ends(*step)`` after it. For agents
    that take info, ``episodes.infos(infos)`` is what `Agent.act` and `Agent.assign_reward` take next to the list, and
    ``episodes.infos(infos)[env]`` is the ``final_info`` of `Agent.terminate_episode`.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        """Episodes in `envs`, which have been reset.

        The autoreset mode is the one in their metadata, else Gymnasium's default, a reset in the next step.
        """
        self._envs = envs
        self._mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._resets_next = np.zeros(envs.num_envs, dtype=bool)

    def turns(self, observations: Any) -> list[Any]:
        """One observation for each environment; None where the next step only resets it, whatever the action."""
        each = iterate(self._envs.observation_space, observations)
        return [
            None if resets else observation
            for observation, resets in zip(each, self._resets_next, strict=True)
        ]

    def infos(self, infos: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The info of each environment, out of the one that Gymnasium gives for all of them."""
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
        terminated = np.asarray(terminations, dtype=bool)
        truncated = np.asarray(truncations, dtype=bool)
        over = terminated | truncated
        if self._mode is AutoresetMode.NEXT_STEP:
            self._resets_next = over
        if not over.any():
            return []
        final = self._final_observations(observations, infos)
        ends = []
        for env in np.flatnonzero(over).tolist():
            # Where both are true the environment ended the episode itself, so nothing is left to bootstrap.
            was_cut_off = bool(truncated[env] and not terminated[env])
            # The vector environment may write the next observation into the same array.
            ends.append(EpisodeEnd(env, was_cut_off, copy.deepcopy(final[env])))
        return ends

    def _final_observations(self, observations: Any, infos: Mapping[str, Any]) -> Any:
        """Each environment's last observation before any reset, by its index."""
        if self._mode is not AutoresetMode.SAME_STEP:
            return list(iterate(self._envs.observation_space, observations))
        if "final_obs" not in infos:
            raise EnvError(
                "The vector environment resets in the same step and has no final_obs in its infos."
            )
        return infos["final_obs"]


def _info_of(infos: Mapping[str, Any], env: int) -> dict[str, Any]:
    """The info of one environment. For each key, ``_key`` is a mask that says which environments have it."""
    found: dict[str, Any] = {}
    for mask_name, mask in infos.items():
        if not mask_name.startswith("_"):
            continue
        key = mask_name[1:]
        if key in infos and mask[env]:
            value = infos[key]
            found[key] = _info_of(value, env) if isinstance(value, Mapping) else value[env]
    return found
