"""Makes Gymnasium environments, for rollouts, people's episodes and checks alike.

Gymnasium is imported when the first environment is made. Its own checker is left out, so a step costs no more than
what the environment does in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from llamagym_tui.errors import EnvError, user_place
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.drawing import draws, renders_text

if TYPE_CHECKING:
    import gymnasium

MakeEnv = Callable[[str, Mapping[str, Any]], "gymnasium.Env[Any, Any]"]


def make_env(env_id: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """An environment by its Gymnasium id.

    Raises:
        EnvError: it cannot be made.
    """
    import gymnasium

    try:
        return gymnasium.make(env_id, disable_env_checker=True, **env_kwargs)
    except Exception as error:  # an environment's constructor may raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise EnvError(f"The environment {env_id} cannot be made: {reason.rstrip('.')}{user_place(error)}.") from error


class EnvMaker:
    """Makes the environments of one agent; they render text if they can and the agent draws nothing itself."""

    def __init__(self, agent: AgentBase, make: MakeEnv = make_env) -> None:
        self._agent, self._make = agent, make
        self._kwargs: Mapping[str, Any] | None = None
        """Arguments of every environment after the first; None: not tried yet which ones render text."""

    def __call__(self) -> gymnasium.Env[Any, Any]:
        env_id, own = self._agent.env_id, self._agent.env_kwargs
        if self._kwargs is not None:
            return self._make(env_id, self._kwargs)
        env, self._kwargs = self._make(env_id, own), own
        if draws(self._agent) or not renders_text(env, own):
            return env
        try:
            rendering = self._make(env_id, {**own, "render_mode": "ansi"})
        except EnvError:
            return env
        env.close()
        self._kwargs = {**own, "render_mode": "ansi"}
        return rendering
