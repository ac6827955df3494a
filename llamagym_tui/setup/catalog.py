"""Finds agents: by name, by ``path.py[:Class]``, or a generic one for a Gymnasium id; else a UsageError."""

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
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import EnvError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import GAME_FILE, make_env
from llamagym_tui.game.observations import Range
from llamagym_tui.setup.extras import install_command, module_of
from llamagym_tui.user_files import REFUSED, may_open


class AgentFile(NamedTuple):
    """A spec of the form ``path.py[:Class]``."""

    path: Path
    """Absolute."""
    class_name: str | None


def built_in() -> dict[str, type[AgentBase]]:
    """The agents that ship, by the name of their file; first of all the one whose episodes are the shortest."""
    found = ((name, _agent_in(name)) for name in _agent_modules())
    return {name: agent for name, agent in found if agent is not None}


def find_agent(
    spec: str, env_kwargs: Mapping[str, Any] | None = None, ranges: Sequence[Range] | None = None
) -> type[AgentBase]:
    """The agent class that a spec names.

    Args:
        spec: a built-in name (``frozen_lake`` or ``frozen-lake``), ``path.py[:Class]``, or a Gymnasium id
            (``CartPole-v1``, ``module:Maze-v0``).
        env_kwargs: of ``gymnasium.make``, on top of the agent's own; baselines are of its own alone.
        ranges: of the numbers that a generic agent shows, as a run began with them. None: found now.
    Raises:
        UsageError: nothing of that name, the message has the nearest ones; or a package is missing that it needs.
        AgentFileError: the file is faulty; the message has file and line.
    """
    agent = _named(spec)
    if needed := missing(agent):
        raise UsageError(
            f"{agent_name(spec)} needs the package {module_of(agent.extra)}, which is not installed: {needed}."
        )
    if env_kwargs:
        # Its module is this one: what ships for the agent was played in its own environment.
        agent = type(
            agent.__name__,
            (agent,),
            {"env_kwargs": {**agent.env_kwargs, **env_kwargs}, "baselines": {}},
        )
    if not issubclass(agent, GenericAgent):
        return agent
    from llamagym_tui.setup.generic_agents import completed

    return completed(agent, ranges)


def agent_of(config: RunConfig) -> type[AgentBase]:
    """The agent class of a run. Raises what `find_agent` raises."""
    return find_agent(config.agent, config.env, config.observation_ranges)


def _named(spec: str) -> type[AgentBase]:
    file = agent_file(spec)
    if (file or ":" in spec or GAME_FILE.fullmatch(spec)) and not may_open(absolute_spec(spec)):
        raise UsageError(REFUSED)
    if file is not None:
        from llamagym_tui.setup.agent_files import load_agent

        return load_agent(*file)
    return _agent_in(_as_built_in(spec)) or _agent_for(spec) or _generic_agent(spec)


def missing(agent: type[AgentBase]) -> str:
    """How pip installs what an agent's environment needs; empty: it is there."""
    if not agent.extra or find_spec(module_of(agent.extra)) is not None:
        return ""
    return install_command(agent.extra)


def agent_file(spec: str) -> AgentFile | None:
    """The file that a spec names, or None if it is a name or an id."""
    match = re.fullmatch(r"(.+\.py)(?::([A-Za-z_]\w*))?", spec)
    return AgentFile(Path(match[1]).expanduser().absolute(), match[2]) if match else None


def absolute_spec(spec: str) -> str:
    """The same spec for a process with another working directory, a built-in name as its file has it."""
    file = agent_file(spec)
    if file is None:
        return (
            str(Path(spec).expanduser().absolute())
            if GAME_FILE.fullmatch(spec)
            else _as_built_in(spec)
        )
    return f"{file.path}:{file.class_name}" if file.class_name else str(file.path)


def is_same_agent(spec: str, other: str) -> bool:
    """Whether two specs name the same agent; one that names a file alone is of the only agent there."""
    file, second = agent_file(spec), agent_file(other)
    if file is None or second is None:
        return absolute_spec(spec) == absolute_spec(other)
    is_same_class = file.class_name == second.class_name or None in (
        file.class_name,
        second.class_name,
    )
    return file.path == second.path and is_same_class


def agent_name(spec: str) -> str:
    """A short name for files and headers: ``blackjack``, ``cliff`` for ``./cliff.py``, ``CartPole-v1``."""
    file = agent_file(spec)
    name = (
        file.path.stem
        if file
        else Path(spec).stem
        if GAME_FILE.fullmatch(spec)
        else _as_built_in(spec)
    )
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "agent"


def action_names(agent_class: type[AgentBase]) -> tuple[str, ...]:
    """Names of an agent's discrete actions: its own, else numbers from the action space, else none."""
    if agent_class.action_names:
        return tuple(agent_class.action_names)
    from gymnasium.spaces import Discrete

    try:
        env = make_env(agent_class.env_id, agent_class.env_kwargs)
    except EnvError as error:
        raise UsageError(str(error)) from error
    env.close()
    space: Any = env.action_space
    is_numbered = isinstance(space, Discrete) and space.start == 0
    return tuple(f"action {index}" for index in range(int(space.n))) if is_numbered else ()


def _as_built_in(spec: str) -> str:
    """``frozen_lake`` for ``frozen-lake`` too; what names no agent that ships stays as it is."""
    name = spec.replace("-", "_")
    return name if _agent_in(name) is not None else spec


@cache
def _agent_modules() -> list[str]:
    """Module names; nothing is imported."""
    names = [path.stem for path in Path(agents.__file__).parent.glob("[!_]*.py")]
    return sorted(names, key=lambda name: (name != "blackjack", name))


@cache
def _agent_in(name: str) -> type[AgentBase] | None:
    """The agent of a module among those that ship, None if there is none; only that module is imported."""
    if name not in _agent_modules():
        return None
    module = importlib.import_module(f"{agents.__name__}.{name}")
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    return next((value for value in own if issubclass(value, AgentBase) and value.env_id), None)


def _agent_for(env_id: str) -> type[AgentBase] | None:
    """The agent that ships for a kind of ids, as it plays this one; None: there is none."""
    for agent in built_in().values():
        module, colon, _ = agent.env_id.rpartition(":")
        name = absolute_spec(env_id.removeprefix(f"{module}:"))
        if agent.more_ids and re.match(agent.more_ids, name):
            if f"{module}{colon}{name}" == agent.env_id:
                return agent
            if GAME_FILE.fullmatch(name) and not Path(name).is_file():
                raise UsageError(f"There is no game file {name}; check the path.")
            if module and not missing(agent):
                importlib.import_module(module)
                _require_known(name)
            own = {
                "env_id": f"{module}{colon}{name}",
                "env_kwargs": {},
                "title": agent_name(name),
                "baselines": {},
            }
            return type(agent.__name__, (agent,), own)
    return None


def _generic_agent(env_id: str) -> type[AgentBase]:
    """Of an id as `gymnasium.make` takes it; one in a module is looked up when the environment is made."""
    if ":" not in env_id:
        _require_known(env_id)
    return type(
        "GenericAgent", (GenericAgent,), {"env_id": env_id, "__module__": GenericAgent.__module__}
    )


def _require_known(env_id: str) -> None:
    import gymnasium

    try:
        gymnasium.spec(env_id)
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        folded = {name.lower(): name for name in [*gymnasium.registry, *built_in()]}
        nearest = [
            folded[name]
            for name in difflib.get_close_matches(env_id.lower(), list(folded), n=3, cutoff=0.6)
        ]
        hint = (
            f"did you mean {' or '.join(nearest)}?"
            if nearest
            else f"built in: {', '.join(built_in())}."
        )
        raise UsageError(f"There is no agent named {env_id!r}; {hint}") from error
