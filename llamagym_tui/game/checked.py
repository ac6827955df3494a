"""Checks and copies what crosses from an environment; the one maker of environments puts it around each of them.

Many environments hand out their own buffers, and change them in the next step. Some were moved from gym to Gymnasium
halfway. So whoever plays gets copies that stay as they are, and an answer of another form is an EnvError that names the
environment and what it returned.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from llamagym_tui.errors import RAISED, EnvError, described

MOST_SHOWN = 80
"""Characters of a value that a message repeats."""
STEP = "step has to return observation, reward, terminated, truncated and info"


class Checked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations, rewards and infos are what Gymnasium says, and stay as they were returned."""

    def __init__(self, env: Any, env_id: str) -> None:
        """`env_id` names the environment in messages."""
        super().__init__(env)
        self._env_id = env_id

    def __getattr__(self, name: str) -> Any:
        """Any other attribute is that of the environment within, which an agent's own wrapper may be."""
        if name == "env":  # not set yet
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """That of the environment within, which knows nothing of this wrapper."""
        return self.env.spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As of the environment; raises EnvError if it returns no observation with an info."""
        found: Any = self.env.reset(seed=seed, options=options)
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
            raise self._fault("reset has to return an observation and an info, and returned", found)
        observation, info = found
        return self._copied(observation), info_copied(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As of the environment; raises EnvError if it returns other values than the five of a step."""
        try:
            found: Any = self.env.step(action)
        except ValueError as error:
            # One of Gymnasium's wrappers, as of a time limit, was given other values.
            if "values to unpack (expected 5" in str(error):
                raise EnvError(f"{self._env_id}: {STEP}, and there are {error}.") from error
            raise
        if not (isinstance(found, tuple) and len(found) == 5 and isinstance(found[4], Mapping)):
            raise self._fault(f"{STEP}, and returned", found)
        observation, reward, terminated, truncated, info = found
        for end in (terminated, truncated):
            if not isinstance(end, bool | np.bool_):
                raise self._fault(
                    "terminated and truncated have to be true or false, and one is", end
                )
        try:
            number = float(reward)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self._fault("the reward has to be a finite number, and is", reward)
        return (
            self._copied(observation),
            number,
            bool(terminated),
            bool(truncated),
            info_copied(info),
        )

    def _copied(self, observation: Any) -> Any:
        try:
            return copy.deepcopy(observation)
        except RAISED as error:
            raise EnvError(
                f"{self._env_id}: its observation has to be copied, as the next step may change it, and cannot be: "
                f"{described(error)}."
            ) from error

    def _fault(self, needed: str, found: Any) -> EnvError:
        try:
            text = " ".join(repr(found).split())
        except RAISED:  # a class of other people's
            text = "a value"
        return EnvError(f"{self._env_id}: {needed} {text[:MOST_SHOWN]} ({type(found).__name__}).")


def info_copied(info: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an info with its arrays and containers; things that are no data, as a game's engine, are the same."""
    found = dict(info)
    for key, value in found.items():
        if isinstance(value, np.ndarray | list | tuple | dict):
            found[key] = copy.deepcopy(value)
    return found
