"""Finds agents: by name, by ``path.py[:Class]``, or a generic one by a Gymnasium id; raises UsageError otherwise."""

import difflib
import importlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from llamagym_tui import agents
from llamagym_tui.agents.generic import GenericAgent
from llamagym_tui.errors import (
    RAISED,
    AgentFileError,
    EnvError,
    UsageError,
    described,
)
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import GAME_FILE, make_env
from llamagym_tui.game.observations import Range
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.extras import install_command, module_of
from llamagym_tui.user_files import REFUSED, may_open


class AgentFile(NamedTuple):
    """A spec of the form ``path.py[:Class]``."""

    path: Path
    """The file's absolute path."""
    class_name: str | None
    """Name of a class in it; None for the only agent that it defines."""


def built_in() -> dict[str, type[AgentBase]]:
    """The agents that ship, by the name of their file; the one with the shortest episodes comes first."""
    found = {}
    for name in _agent_modules():
        agent = _agent_in(name)
        if agent is not None:
            found[name] = agent
    return found


def find_agent(
    spec: str,
    env_kwargs: Mapping[str, Any] | None = None,
    ranges: Sequence[Range] | None = None,
) -> type[AgentBase]:
    """The agent class that a spec names.

    Args:
        spec: a built-in name (``frozen_lake`` or ``frozen-lake``), ``path.py[:Class]``, or a Gymnasium id
            (``CartPole-v1``, ``module:Maze-v0``).
        env_kwargs: keyword arguments of ``gymnasium.make`` on top of the agent's own; if there are any, the agent has
            no baselines, because those hold for its own environment only.
        ranges: ranges of the numbers that a generic agent shows, as a run began with them; else found now.
    Raises:
        UsageError: there is no agent of that name, and the message has the nearest ones; or a package is missing.
        AgentFileError: the file has a fault; the message has file and line.
    """
    agent = _named(spec)
    if needed := missing(agent):
        raise UsageError(
            f"{agent_name(spec)} needs the package {module_of(agent.extra)}, which is not installed: {needed}."
        )
    if env_kwargs:
        # The new class belongs to this module, so that no demonstrations ship for it: they are of another environment.
        own = {"env_kwargs": {**agent.env_kwargs, **env_kwargs}, "baselines": {}}
        agent = type(agent.__name__, (agent,), own)
    if not issubclass(agent, GenericAgent):
        return agent
    from llamagym_tui.setup.generic_agents import completed

    return completed(agent, ranges)


def agent_of(config: RunConfig) -> type[AgentBase]:
    """The agent class of a run. Raises what `find_agent` raises."""
    agent = find_agent(config.agent, config.env, config.observation_ranges)
    if config.wordings and not agent.wordings:
        raise UsageError(
            f"{agent.__name__} words its observations in one way: leave --wordings out, or list others as `wordings`."
        )
    return agent


def made(agent_class: type[AgentBase]) -> AgentBase:
    """An agent of a class, without a model.

    Raises:
        AgentFileError: its constructor failed, or ended the program; the message has file and line.
    """
    try:
        return agent_class()
    except RAISED as error:  # a user's own code
        raise AgentFileError(
            f"{agent_class.__name__} cannot be made: {described(error)}; its constructor is called without a model and "
            "without arguments, and the command line is not its own."
        ) from error


def player(agent_class: type[AgentBase]) -> AgentBase:
    """An agent of a class, without a model, whose actions have names. Raises what `made` and `action_names` raise."""
    agent = made(agent_class)
    if not agent.action_names:
        agent.action_names = action_names(agent_class)  # type: ignore[misc]
    return agent


def _named(spec: str) -> type[AgentBase]:
    """The agent class that a spec names, not completed yet."""
    file = agent_file(spec)
    opens_a_file = file is not None or ":" in spec or GAME_FILE.fullmatch(spec) is not None
    if opens_a_file and not may_open(absolute_spec(spec)):
        raise UsageError(REFUSED)
    if file is not None:
        from llamagym_tui.setup.agent_files import load_agent

        return load_agent(file.path, file.class_name)
    return _agent_in(_as_built_in(spec)) or _agent_for(spec) or _generic_agent(spec)


def missing(agent: type[AgentBase]) -> str:
    """The command that installs what an agent's environment needs; empty if it is installed."""
    if not agent.extra or find_spec(module_of(agent.extra)) is not None:
        return ""
    return install_command(agent.extra)


def agent_file(spec: str) -> AgentFile | None:
    """The file that a spec names, or None if the spec is a name or an id."""
    match = re.fullmatch(r"(.+\.py)(?::([A-Za-z_]\w*))?", spec)
    if match is None:
        return None
    return AgentFile(Path(match[1]).expanduser().absolute(), match[2])


def absolute_spec(spec: str) -> str:
    """The same spec for a process with another working directory; a built-in name is written as its file's name."""
    file = agent_file(spec)
    if file is not None:
        return f"{file.path}:{file.class_name}" if file.class_name else str(file.path)
    if GAME_FILE.fullmatch(spec):
        return str(Path(spec).expanduser().absolute())
    return _as_built_in(spec)


def code_of(spec: str) -> str | None:
    """The code of the user's that an agent's spec would execute, as an absolute path or a module; None if none.

    Gymnasium imports the module of an id of the form ``module:Id``.
    """
    file = agent_file(spec)
    if file is not None:
        return str(file.path)
    module, colon, _ = spec.partition(":")
    return module if colon else None


def is_same_agent(spec: str, other: str) -> bool:
    """True if two specs name the same agent; a spec of a file alone means the only agent there."""
    file = agent_file(spec)
    other_file = agent_file(other)
    if file is None or other_file is None:
        return absolute_spec(spec) == absolute_spec(other)
    names = {file.class_name, other_file.class_name} - {None}
    return file.path == other_file.path and len(names) <= 1


def agent_name(spec: str) -> str:
    """A short name for files and headers: ``blackjack``, ``cliff`` for ``./cliff.py``, ``CartPole-v1``."""
    file = agent_file(spec)
    if file is not None:
        name = file.path.stem
    elif GAME_FILE.fullmatch(spec):
        name = Path(spec).stem
    else:
        name = _as_built_in(spec)
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "agent"


def action_names(agent_class: type[AgentBase]) -> tuple[str, ...]:
    """Names of an agent's discrete actions: its own, else made from the numbers of the action space, else none."""
    if agent_class.action_names:
        return tuple(agent_class.action_names)
    from gymnasium.spaces import Discrete

    try:
        env = make_env(agent_class.env_id, agent_class.env_kwargs)
    except EnvError as error:
        raise UsageError(str(error)) from error
    env.close()
    space: Any = env.action_space
    if not isinstance(space, Discrete) or space.start != 0:
        return ()
    return tuple(f"action {index}" for index in range(int(space.n)))


def _as_built_in(spec: str) -> str:
    """The name of a built-in agent's file, ``frozen_lake`` also for ``frozen-lake``; any other spec as it is."""
    name = spec.replace("-", "_")
    return name if _agent_in(name) is not None else spec


@cache
def _agent_modules() -> list[str]:
    """Names of the modules in which agents ship; nothing is imported."""
    names = [path.stem for path in Path(agents.__file__).parent.glob("[!_]*.py")]
    return sorted(names, key=lambda name: (name != "blackjack", name))  # blackjack first


@cache
def _agent_in(name: str) -> type[AgentBase] | None:
    """The agent that ships in a module of that name, or None; only that module is imported."""
    if name not in _agent_modules():
        return None
    module = importlib.import_module(f"{agents.__name__}.{name}")
    for value in vars(module).values():
        is_own = isinstance(value, type) and value.__module__ == module.__name__
        if is_own and issubclass(value, AgentBase) and value.env_id:
            return value
    return None


def _agent_for(env_id: str) -> type[AgentBase] | None:
    """The agent that ships for ids like this one, adapted to this one; None if there is none."""
    for agent in built_in().values():
        module, colon, _ = agent.env_id.rpartition(":")
        name = absolute_spec(env_id.removeprefix(f"{module}:"))
        if not agent.more_ids or not re.match(agent.more_ids, name):
            continue
        full_id = f"{module}{colon}{name}"
        if full_id == agent.env_id:
            return agent
        if GAME_FILE.fullmatch(name) and not Path(name).is_file():
            raise UsageError(f"There is no game file {name}; check the path.")
        if module and not missing(agent):
            importlib.import_module(module)
            _require_known(name)
        own = {
            "env_id": full_id,
            "env_kwargs": {},
            "title": agent_name(name),
            "baselines": {},
        }
        return type(agent.__name__, (agent,), own)
    return None


def _generic_agent(env_id: str) -> type[AgentBase]:
    """A generic agent for an id as `gymnasium.make` takes it.

    An id of the form ``module:Id`` is looked up later, when the environment is made.
    """
    if ":" not in env_id:
        _require_known(env_id)
    own = {"env_id": env_id, "__module__": GenericAgent.__module__}
    return type("GenericAgent", (GenericAgent,), own)


def _require_known(env_id: str) -> None:
    """Check that Gymnasium knows an id; raises UsageError with the nearest ids and agents if it does not."""
    import gymnasium

    try:
        gymnasium.spec(env_id)
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        by_lower_case = {name.lower(): name for name in [*gymnasium.registry, *built_in()]}
        close = difflib.get_close_matches(env_id.lower(), list(by_lower_case), n=3, cutoff=0.6)
        names = " or ".join(by_lower_case[name] for name in close)
        hint = f"did you mean {names}?" if close else f"built in: {', '.join(built_in())}."
        raise UsageError(
            f"There is no agent named {env_id!r}; {hint} An id that a package registers needs its module, as in "
            "ale_py:ALE/Pong-v5."
        ) from error
