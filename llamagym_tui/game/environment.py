"""Makes Gymnasium environments; one that cannot be made, or not wrapped, raises EnvError."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llamagym_tui.errors import EnvError, described, user_place
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.drawing import draws, renders_text

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]
else:  # imported when the first one is made
    Env = Any

MakeEnv = Callable[[str, Mapping[str, Any]], Env]

MOST_COMBINATIONS = 64
"""Of several decisions in one action, as far as each has a name."""
GAME_FILE = re.compile(r".+\.z[1-8]")
"""Path of a text game."""
TURNS_WITHOUT_LIMIT = 200
"""Of an episode at most, where neither the environment nor the run has a limit."""


def make_env(env_id: str, env_kwargs: Mapping[str, Any]) -> Env:
    """An environment by its Gymnasium id; or a text game, by its file or a challenge of TextWorld's (``tw-simple``)."""
    import gymnasium

    try:
        made_of: Any = env_id
        if env_id.startswith("tw-") or GAME_FILE.fullmatch(env_id):
            from llamagym_tui.game.text_game import spec_of

            made_of = spec_of(env_id)
        return gymnasium.make(made_of, disable_env_checker=True, **env_kwargs)
    except (Exception, SystemExit) as error:  # an environment's constructor may raise anything
        reason = (str(error).strip().splitlines() or [""])[0].partition(
            " was raised from the environment creator"
        )[0]
        if not reason or isinstance(error, KeyError | SystemExit):
            reason = described(error)
        raise EnvError(
            f"The environment {env_id} cannot be made: {reason.rstrip('.')}{user_place(error)}."
        ) from error


def episode_seed(run_seed: int, episode: int) -> int:
    """The seed with which an episode's environment is reset, whichever environment that is, so that it can be repeated.

    `episode` counts from 0 over all sessions of a run.
    """
    import numpy as np

    return int(np.random.SeedSequence([run_seed, episode]).generate_state(1)[0])


def wrapped_env(agent: AgentBase, make: MakeEnv = make_env, **more: Any) -> Env:
    """An environment in the agent's wrappers, each action repeated as it has it, made with `more` keyword arguments."""
    env = make(agent.env_id, {**agent.env_kwargs, **more})
    try:
        env = agent.wrap_env(env)
        if agent.action_repeat == 1:
            return env
        from gymnasium.wrappers import RepeatAction

        return RepeatAction(env, agent.action_repeat)
    except (Exception, SystemExit) as error:  # a user's own code
        raise EnvError(f"{type(agent).__name__}.wrap_env failed: {described(error)}.") from error


def agent_env(agent: AgentBase, make: MakeEnv = make_env, **more: Any) -> Env:
    """An environment as the agent plays it: `wrapped_env`, its actions counted from 0 if the agent counts them."""
    env = wrapped_env(agent, make, **more)
    actions = few_actions(env.action_space) if agent.counts_actions else None
    if actions is None or actions == range(len(actions)):
        return env
    from gymnasium.spaces import Discrete
    from gymnasium.wrappers import TransformAction

    return TransformAction(env, actions.__getitem__, Discrete(len(actions)))


def few_actions(space: Any) -> Sequence[Any] | None:
    """The actions of a space in order, combinations of several decisions too; None: there are too many, or no end."""
    import numpy as np
    from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

    if isinstance(space, Discrete):
        return range(int(space.start), int(space.start) + int(space.n))
    if not isinstance(space, MultiDiscrete | MultiBinary) or (parts := decisions(space)) is None:
        return None
    combined = itertools.product(*parts)
    return [np.array(action, dtype=space.dtype).reshape(space.shape) for action in combined]


def decisions(space: Any) -> list[range] | None:
    """The values of each decision of a MultiDiscrete or MultiBinary space; None: too many combinations to name."""
    import numpy as np

    sizes = np.ravel(getattr(space, "nvec", np.full(space.shape, 2))).tolist()
    starts = np.ravel(getattr(space, "start", np.zeros(len(sizes), int))).tolist()
    parts = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    return parts if math.prod(sizes) <= MOST_COMBINATIONS else None


def turn_limit(env: Any) -> int:
    """Turns after which an environment itself cuts an episode off; of one that never does, a default."""
    # minigrid's environments count their steps themselves.
    own = getattr(env.spec, "max_episode_steps", None) or getattr(env.unwrapped, "max_steps", None)
    return own if isinstance(own, int) and own > 0 else TURNS_WITHOUT_LIMIT


class EnvMaker:
    """Makes the environments of one agent; they render text if they can and the agent draws nothing itself."""

    def __init__(self, agent: AgentBase, make: MakeEnv = make_env) -> None:
        self._agent, self._make = agent, make
        self.more: Mapping[str, Any] | None = None
        """More arguments of every environment after the first. None: not tried yet which ones render text."""

    def __call__(self) -> Env:
        if self.more is not None:
            return agent_env(self._agent, self._make, **self.more)
        env, self.more = agent_env(self._agent, self._make), {}
        if draws(self._agent) or not renders_text(env, self._agent.env_kwargs):
            return env
        try:
            rendering = agent_env(self._agent, self._make, render_mode="ansi")
        except EnvError:
            return env
        env.close()
        self.more = {"render_mode": "ansi"}
        return rendering
