"""Calls into other people's code: an environment's reset, step and close, and an agent's text of an observation.

What they raise is an `EpisodeFault` that names them, with the action.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

from llamagym_tui.errors import MOST_WORDS, RAISED, EnvError
from llamagym_tui.game import observed
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.trainer.rollout.failures import EpisodeFault

if TYPE_CHECKING:
    import gymnasium

    from llamagym_tui.engine.policy.policy import Policy

COUNTED = (Discrete, MultiDiscrete, MultiBinary)
"""Spaces of actions that an environment's own code counts on."""
LARGEST_RETURN = 1e15
"""Squares of such returns, and of their gradients, are numbers in the single precision that an update computes with."""
log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: observed.Info
    is_refused: bool
    """Whether the environment refused the action."""
    steps: int
    """The environment's steps that the action took."""


def was_reset(env: gymnasium.Env[Any, Any], env_id: str, seed: int) -> tuple[Any, observed.Info]:
    try:
        return env.reset(seed=seed)
    except EnvError as error:
        raise EpisodeFault(str(error).rstrip(".")) from error
    except RAISED as error:
        raise EpisodeFault(f"{env_id} failed to reset", error) from error


def stepped(env: gymnasium.Env[Any, Any], env_id: str, action: Any, is_fallback: bool) -> Outcome:
    source = "the fallback action" if is_fallback else f"action {str(action)[:MOST_WORDS]}"
    if not _is_in(env.action_space, action):
        source += f", which is not in {env.action_space}"
        if isinstance(env.action_space, COUNTED):
            # Many environments would take it in silence, as -1 for the last one.
            raise EpisodeFault(f"{env_id} was not stepped on {source}")
    try:
        observation, reward, terminated, truncated, info = env.step(action)
        return Outcome(
            observation=observation,
            reward=float(reward),
            terminated=terminated,
            truncated=truncated,
            info=info,
            is_refused=observed.is_refused(info),
            steps=observed.action_steps(info),
        )
    except EnvError as error:
        raise EpisodeFault(f"{str(error).rstrip('.')} (after {source})") from error
    except RAISED as error:
        raise EpisodeFault(f"{env_id} failed on {source}", error) from error


def _is_in(space: gymnasium.Space[Any], action: Any) -> bool:
    try:
        return space.contains(action)
    except RAISED:
        return False


def in_words(
    agent: AgentBase, policy: Policy, observation: Any, info: observed.Info
) -> observed.Observed:
    """A state as the agent words it, the replies that name its actions known to the policy."""
    shown = worded(agent, observation, info)
    try:
        policy.trie_of(shown.actions)
    except RAISED as error:
        raise EpisodeFault(f"{type(agent).__name__}.actions failed", error) from error
    return shown


def worded(agent: AgentBase, observation: Any, info: observed.Info) -> observed.Observed:
    """A state as the agent words it."""
    text = observation_text(agent, observation, info)
    try:
        return observed.Observed(text, observed.admissible_actions(agent, observation, info))
    except EnvError as error:
        raise EpisodeFault(str(error).rstrip(".")) from error
    except RAISED as error:
        raise EpisodeFault(f"{type(agent).__name__}.actions failed", error) from error


def observation_text(agent: AgentBase, observation: Any, info: observed.Info) -> str:
    try:
        return observed.observation_text(agent, observation, info)
    except RAISED as error:
        raise EpisodeFault(f"{type(agent).__name__}.format_observation failed", error) from error


def close(env: Any, index: int) -> None:
    """Close an environment; one that fails in that ends nothing."""
    try:
        env.close()
    except RAISED:
        log.exception("environment %d was not closed", index + 1)
