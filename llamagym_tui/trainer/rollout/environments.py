"""Seats of a rollout: an environment each, and the episode that is played in it.

Holds what is counted of an episode, and makes the environments; who plays in them, and when, is the rollout's matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium

from llamagym_tui.config import Mode
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.errors import EnvError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.drawing import draws, renders_text


@dataclass(frozen=True, slots=True)
class EndedEpisode:
    """What is counted of an episode, watched or not."""

    episode_return: float
    length: int
    parse_failures: int
    mode: Mode
    prompt_version: int
    policy_version: int
    actions: tuple[int, ...] = ()
    """Turns in which the reply named each action; empty: they are not counted."""
    is_corrected: bool = False
    """Whether a person acted in it."""


@dataclass(slots=True)
class Seat:
    """One environment and the episode that is played in it."""

    index: int
    env: gymnasium.Env[Any, Any]
    seed: int | None
    episode: Episode | None = None
    number: int = 0
    mode: Mode = "train"
    prompt_version: int = 0
    observation: str = ""
    length: int = 0
    episode_return: float = 0.0
    parse_failures: int = 0
    actions: list[int] = field(default_factory=list)
    is_corrected: bool = False
    """Whether a person acted in this episode."""
    knows_last: bool = True
    """Whether the sampler has seen the last reply."""

    def ended(self, policy_version: int) -> EndedEpisode:
        """What is counted of the episode, which has ended."""
        return EndedEpisode(
            self.episode_return,
            self.length,
            self.parse_failures,
            self.mode,
            self.prompt_version,
            policy_version,
            tuple(self.actions),
            self.is_corrected,
        )


class EnvMaker:
    """Makes the environments of one agent: such as render text if they can and the agent draws nothing."""

    def __init__(self, agent: AgentBase) -> None:
        self._agent = agent
        self._rendering: dict[str, str] | None = None
        """Arguments by which environments render text, none if they cannot; None: not tried yet."""

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """An environment.

        Raises:
            EnvError: it cannot be made.
        """
        if self._rendering is not None:
            return make_env(self._agent, **self._rendering)
        env, self._rendering = make_env(self._agent), {}  # the first one shows what all can do
        if draws(self._agent) or not renders_text(env, self._agent.env_kwargs):
            return env
        try:
            rendering = make_env(self._agent, render_mode="ansi")
        except EnvError:
            return env
        env.close()
        self._rendering = {"render_mode": "ansi"}
        return rendering


def make_env(agent: AgentBase, **more: Any) -> gymnasium.Env[Any, Any]:
    """The agent's environment, with more arguments than the agent's own.

    Raises:
        EnvError: Gymnasium cannot make it.
    """
    try:
        return gymnasium.make(agent.env_id, disable_env_checker=True, **{**agent.env_kwargs, **more})
    except Exception as error:
        raise EnvError(f"Environment {agent.env_id!r} cannot be made: {error}.") from error
