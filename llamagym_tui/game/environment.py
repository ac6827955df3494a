"""Makes Gymnasium environments; raises EnvError if one cannot be made or wrapped."""

import copy
import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from llamagym_tui.errors import RAISED, EnvError, described
from llamagym_tui.game.actions import spelled
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.drawing import draws, renders_text

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]
else:  # imported when the first one is made
    Env = Any

NOTHING_MORE: Mapping[str, Any] = MappingProxyType({})
MOST_COMBINATIONS = 64
"""If an action is a combination of several decisions, the most combinations that each get a name."""
GAME_FILE = re.compile(r".+\.z[1-8]")
"""Regular expression for the path of a text game."""
OPPONENT = "opponent"
"""The keyword argument that names the other player of a game for two."""
POLICY = "policy"
"""Its value where the other player is no part of the environment."""
SELF = "self"
"""Its value, as a person gives it, where the other player is an earlier self."""
TURNS_WITHOUT_LIMIT = 200
"""Most turns of an episode if neither the environment nor the run has a limit."""


def make_env(env_id: str, env_kwargs: Mapping[str, Any]) -> Env:
    """An environment by its Gymnasium id, or a text game by its file or by a challenge of TextWorld (``tw-simple``)."""
    import gymnasium

    try:
        made_of: Any = env_id
        if env_id.startswith("tw-") or GAME_FILE.fullmatch(env_id):
            from llamagym_tui.game.text_game import spec_of

            made_of = spec_of(env_id)
        return gymnasium.make(made_of, disable_env_checker=True, **env_kwargs)
    except RAISED as error:  # an environment's constructor may raise anything
        is_reworded = " was raised from the environment creator" in str(error)
        reason = described(error.__context__ if is_reworded and error.__context__ else error)
        if isinstance(error, ModuleNotFoundError):
            reason = f"{reason.partition('. ')[0]}; install the package that has it"
        raise EnvError(f"The environment {env_id} cannot be made: {reason}.") from error


def episode_seed(run_seed: int, episode: int) -> int:
    """The seed with which an environment is reset for an episode, so that the episode can be repeated.

    It does not depend on which of the environments plays the episode. `episode` counts from 0 over all sessions of a
    run.
    """
    import numpy as np

    drawn = int(np.random.SeedSequence([run_seed, episode]).generate_state(1)[0])
    return drawn % 2**31  # many environments take no larger seed


def drawn_wording(run_seed: int, episode: int, wordings: int) -> int:
    """The number of an episode's wording; of as many episodes in a row as there are wordings, each has another one."""
    block, place = divmod(episode, wordings)
    order = list(range(wordings))
    random.Random(episode_seed(run_seed, block)).shuffle(order)
    return order[place]


def wrapped_env(agent: AgentBase, more: Mapping[str, Any] = NOTHING_MORE) -> Env:
    """An environment in the agent's wrappers, in which each action is repeated as often as the agent says.

    What it returns, and what the environment within does, is checked and copied.

    Args:
        more: keyword arguments of the environment next to the agent's own.
    """
    from llamagym_tui.game.checked import Checked

    kwargs = _with_opponent(agent, {**agent.env_kwargs, **more})
    env: Env = Checked(make_env(agent.env_id, kwargs), agent.env_id)
    try:
        wrapped = agent.wrap_env(env)
        if wrapped is not env:
            env = Checked(wrapped, f"{agent.env_id} in {type(agent).__name__}.wrap_env")
        if agent.action_repeat == 1:
            return env
        from gymnasium.wrappers import RepeatAction

        return RepeatAction(env, agent.action_repeat)
    except RAISED as error:  # a user's own code
        raise EnvError(f"{type(agent).__name__}.wrap_env failed: {described(error)}.") from error


def outside_opponents(agent: AgentBase | type[AgentBase], opponent: str) -> list[str]:
    """Those of an ``opponent``'s names, with ``+`` between them, that are no part of the agent's environment."""
    if not agent.opponents:
        return []
    return [name for name in opponent.split("+") if name not in agent.opponents]


def opponent_of(agent: AgentBase | type[AgentBase]) -> str:
    """The opponent that is a policy; empty: there is none."""
    if OPPONENT not in agent.env_kwargs:
        return ""
    return next(iter(outside_opponents(agent, str(agent.env_kwargs[OPPONENT]))), "")


def _with_opponent(agent: AgentBase, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as the environment knows them: a policy is `POLICY`, whichever it is."""
    if not agent.opponents or OPPONENT not in kwargs:
        return kwargs
    names = str(kwargs[OPPONENT]).split("+")
    known = [name if name in agent.opponents else POLICY for name in names]
    return {**kwargs, OPPONENT: "+".join(known)}


def agent_env(agent: AgentBase, more: Mapping[str, Any] = NOTHING_MORE) -> Env:
    """An environment as the agent plays it: a `wrapped_env`, whose actions count from 0 if the agent counts them.

    Raises:
        EnvError: it cannot be made or wrapped, or the agent's actions are not those of the environment.
    """
    env = wrapped_env(agent, more)
    actions = few_actions(env.action_space)
    if actions is None:
        return env
    is_counted = _counts(agent)
    if fault := _fault(agent, env.action_space, actions, is_counted=is_counted):
        env.close()
        raise EnvError(f"{type(agent).__name__} cannot play {agent.env_id}: {fault}.")
    if is_counted or isinstance(actions, range):
        parts = [actions] if isinstance(actions, range) else decisions(env.action_space) or []
        agent.decision_sizes = [len(values) for values in parts]
    if not is_counted or actions == range(len(actions)):
        return env
    from gymnasium.spaces import Discrete
    from gymnasium.wrappers import TransformAction

    return TransformAction(env, actions.__getitem__, Discrete(len(actions)))


def _counts(agent: AgentBase) -> bool:
    """True if an agent's actions are indices of its names, whatever the environment calls them."""
    reads_names = type(agent).extract_action is AgentBase.extract_action
    return agent.counts_actions or (bool(agent.action_names) and reads_names)


def _fault(agent: AgentBase, space: Any, actions: Sequence[Any], *, is_counted: bool) -> str:
    """Why the environment would get other actions than replies name; empty if it gets those."""
    names = len(agent.action_names)
    if names > len(actions):
        return f"it has {names} action_names for the {len(actions)} actions of {space}"
    if fault := _fault_of_names(agent):
        return fault
    if is_counted:
        if not (
            isinstance(agent.fallback_action, int) and 0 <= agent.fallback_action < len(actions)
        ):
            return f"its fallback_action, {agent.fallback_action!r}, is no index of an action"
        return ""
    if names and isinstance(actions, range) and actions.start:
        return (
            f"the environment counts its actions from {actions.start}, so it has to say what extract_action returns: "
            "set counts_actions = True and return indices of action_names, or leave action_names out"
        )
    if not space.contains(agent.fallback_action):
        return f"its fallback_action, {agent.fallback_action!r}, is not in {space}: set another"
    return ""


def _fault_of_names(agent: AgentBase) -> str:
    """Why a reply that names an action may mean another one; empty if all is well."""
    names = agent.action_names
    first: dict[str, str] = {}
    for index, name in enumerate(names):
        word = spelled(name)
        if word in first:
            return f"its action_names {first[word]!r} and {name!r} are read as the same one"
        first[word] = name
        if word.isdecimal() and index != int(word) < len(names):
            return f"its action_names have {name!r} for action {index}, which is the number of another one"
    return ""


def few_actions(space: Any) -> Sequence[Any] | None:
    """All actions of a space in order, also combinations of several decisions; None: too many, or they have no end."""
    import numpy as np
    from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

    if isinstance(space, Discrete):
        return range(int(space.start), int(space.start) + int(space.n))
    if not isinstance(space, MultiDiscrete | MultiBinary):
        return None
    parts = decisions(space)
    if parts is None:
        return None
    combinations = itertools.product(*parts)
    return [np.array(values, dtype=space.dtype).reshape(space.shape) for values in combinations]


def decisions(space: Any) -> list[range] | None:
    """The values of each decision of a MultiDiscrete or MultiBinary space; None: too many combinations to name."""
    import numpy as np

    # A MultiBinary space has neither `nvec` nor `start`: each of its decisions is 0 or 1.
    sizes = np.ravel(getattr(space, "nvec", np.full(space.shape, 2))).tolist()
    starts = np.ravel(getattr(space, "start", np.zeros(len(sizes), int))).tolist()
    if math.prod(sizes) > MOST_COMBINATIONS:
        return None
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def turn_limit(env: Any) -> int:
    """The number of turns after which an environment itself cuts an episode off; a default if it never does."""
    limit = getattr(env.spec, "max_episode_steps", None)
    if not limit:  # minigrid's environments count their steps themselves
        limit = getattr(env.unwrapped, "max_steps", None)
    return limit if isinstance(limit, int) and limit > 0 else TURNS_WITHOUT_LIMIT


def with_kwargs(agent: AgentBase, more: Mapping[str, Any]) -> AgentBase:
    """The agent in its environment with further keyword arguments."""
    if not more:
        return agent
    other = copy.copy(agent)
    other.env_kwargs = {**agent.env_kwargs, **more}  # type: ignore[misc]
    return other


def evaluated_agent(agent: AgentBase) -> AgentBase:
    """The agent in the environment of its evaluations, which is that of its training unless it says otherwise."""
    return with_kwargs(agent, agent.evaluation_kwargs)


class EnvMaker:
    """Makes the environments of one agent, which render text if they can and the agent draws nothing itself."""

    def __init__(self, agent: AgentBase) -> None:
        self._agent = agent
        self._more: Mapping[str, Any] | None = None
        """More keyword arguments, for every environment after the first. None: no environment has been made yet."""

    def __call__(self) -> Env:
        if self._more is not None:
            return agent_env(self._agent, self._more)
        env = agent_env(self._agent)
        self._more = {}
        if draws(self._agent) or not renders_text(env, self._agent.env_kwargs):
            return env
        renders = {"render_mode": "ansi"}
        try:
            rendering = agent_env(self._agent, renders)
        except EnvError:
            return env
        env.close()
        self._more = renders
        return rendering
