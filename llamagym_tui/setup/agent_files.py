"""Loads the agent class from a user's own Python file, or makes one of a class with tools that it names.

Every fault becomes an `AgentFileError` with file and line: wrong syntax, an error at import, a missing method.
"""

import contextlib
import hashlib
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

from llamagym_tui.errors import RAISED, AgentFileError, UsageError, described
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import GAME_FILE
from llamagym_tui.user_files import file_content


def load_agent(path: Path, class_name: str | None = None) -> type[AgentBase]:
    """The agent class of that name in a Python file; without a name, the only one that the file defines.

    Raises:
        UsageError: the file cannot be read.
        AgentFileError: the file or the class has a fault.
    """
    agent_class = _chosen(_executed(path), path, class_name)
    _require_complete(agent_class, path)
    if GAME_FILE.fullmatch(agent_class.env_id):
        agent_class.env_id = str(path.parent / Path(agent_class.env_id).expanduser())
    return agent_class


def _executed(path: Path) -> ModuleType:
    """The file's module, run as a script would be, so that it can import its neighbours."""
    try:
        content = file_content(path)
    except OSError as error:
        raise UsageError(
            f"There is no agent file {path} ({error.strerror or error}); check the path, or see `llamagym-tui agents`."
        ) from error
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]  # two files may have one name
    module = ModuleType(f"llamagym_tui_agent_file_{path.stem}_{digest}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except RAISED as error:
        del sys.modules[module.__name__]
        words = str(error) or "no message"
        raise AgentFileError(
            f"{path}, line {_line_in(path, error)}: {type(error).__name__}: {words.splitlines()[0]}"
        ) from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    return module


def _line_in(path: Path, error: BaseException) -> int:
    """The line of the file from which an error came: the last one among the calls that led to it."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    calls = traceback.extract_tb(error.__traceback__)
    lines = [call.lineno for call in calls if call.filename == str(path)]
    return (lines or [1])[-1] or 1


def _chosen(module: ModuleType, path: Path, class_name: str | None) -> type[AgentBase]:
    """The class of that name, or the only agent class that the module itself defines."""
    agents: dict[str, type[AgentBase]] = {}
    for name, value in vars(module).items():
        is_agent = isinstance(value, type) and issubclass(value, AgentBase)
        if is_agent and value.__module__ == module.__name__:
            agents[name] = value
    if class_name in agents:
        return agents[class_name]
    named = vars(module).get(str(class_name))
    # An environment of Gymnasium's has a method of that name, too, and needs an agent.
    if isinstance(named, type) and hasattr(named, "reset") and not hasattr(named, "np_random"):
        from llamagym_tui.setup.tool_classes import tool_agent

        try:
            return tool_agent(named)
        except RAISED as error:
            raise AgentFileError(
                f"{path}: {class_name} cannot be played: {described(error)}."
            ) from error
    if not agents:
        raise AgentFileError(
            f"{path} defines no agent; write a class that inherits from llamagym_tui.Agent, or name one with tools as "
            "TRL's environment_factory takes it."
        )
    fault = f"has no agent class {class_name}"
    if class_name is None:
        # A base class that leaves methods open is not meant if there is a class that defines them.
        whole = {name: value for name, value in agents.items() if not inspect.isabstract(value)}
        agents = whole or agents
        if len(agents) == 1:
            return next(iter(agents.values()))
        fault = "defines several agents"
    specs = ", ".join(f"{path.name}:{name}" for name in sorted(agents))
    raise AgentFileError(f"{path} {fault}; name one: {specs}.")


def _require_complete(agent_class: type[AgentBase], path: Path) -> None:
    """Check that a class has what an agent needs."""
    line = 1
    with contextlib.suppress(OSError):  # there is no class statement
        line = inspect.getsourcelines(agent_class)[1]
    where = f"{path}, line {line}: {agent_class.__name__}"
    missing = sorted(agent_class.__abstractmethods__)
    if missing:
        raise AgentFileError(f"{where} lacks {', '.join(missing)}; an agent has both methods.")
    if not isinstance(agent_class.env_id, str) or not agent_class.env_id:
        raise AgentFileError(f'{where} names no environment; give it env_id = "…", a Gymnasium id.')
