"""Loads the agent class from a user's own Python file.

Every fault becomes an `AgentFileError` with file and line: wrong syntax, an error at import, a missing method.
"""

import contextlib
import hashlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import CodeType, ModuleType

from llamagym_tui.errors import RAISED, AgentFileError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import GAME_FILE
from llamagym_tui.settings import LARGEST
from llamagym_tui.user_files import file_content


def load_agent(path: Path, class_name: str | None = None) -> type[AgentBase]:
    """The agent class of that name in a Python file; without a name, the only one that the file defines.

    Raises:
        UsageError: there is no such file.
        AgentFileError: the file or the class has a fault.
    """
    if not path.is_file():
        raise UsageError(
            f"There is no agent file {path}; check the path, or see `llamagym-tui agents`."
        )
    agent_class = _chosen(_executed(path), path, class_name)
    _require_complete(agent_class, path)
    if GAME_FILE.fullmatch(agent_class.env_id):
        agent_class.env_id = str(path.parent / Path(agent_class.env_id).expanduser())
    return agent_class


def _compiled(path: Path) -> CodeType:
    """The file's code, not run yet."""
    try:
        return compile(file_content(path), str(path), "exec")
    except SyntaxError as error:
        raise AgentFileError(
            f"{path}, line {error.lineno or 1}: {error.msg}; correct it and start again."
        ) from error
    except ValueError as error:
        raise AgentFileError(f"{path}, line 1: this is not Python source ({error}).") from error
    except OSError as error:
        raise AgentFileError(f"{path} cannot be read: {error.strerror or error}.") from error


def _executed(path: Path) -> ModuleType:
    """The file's module, run as a script would be, so that it can import its neighbours."""
    code = _compiled(path)
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]  # two files may have one name
    spec = importlib.util.spec_from_file_location(
        f"llamagym_tui_agent_file_{path.stem}_{digest}", path
    )
    if spec is None or spec.loader is None:
        raise AgentFileError(
            f"{path}, line 1: Python cannot import a file of this name; end it in .py."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        # `spec.loader.exec_module` could take cached byte code, which hides an edit of the same second and size.
        exec(code, module.__dict__)
    except RAISED as error:
        del sys.modules[spec.name]
        line = _line_in(path, error)
        message = str(error) or "no message"
        raise AgentFileError(
            f"{path}, line {line}: {type(error).__name__}: {message.splitlines()[0]}"
        ) from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    return module


def _line_in(path: Path, error: BaseException) -> int:
    """The line of the file from which an error came: the last one among the calls that led to it."""
    line = 1
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path):
            line = frame.lineno or 1
    return line


def _chosen(module: ModuleType, path: Path, class_name: str | None) -> type[AgentBase]:
    """The class of that name, or the only agent class that the module itself defines."""
    defined: dict[str, type[AgentBase]] = {}
    for name, value in vars(module).items():
        is_agent = isinstance(value, type) and issubclass(value, AgentBase)
        if is_agent and value.__module__ == module.__name__:
            defined[name] = value
    if class_name is not None:
        if class_name in defined:
            return defined[class_name]
        raise AgentFileError(f"{path} has no agent class {class_name}; {_offer(path, defined)}")
    # A base class that leaves methods open is not meant if there is a class that defines them.
    candidates = {name: value for name, value in defined.items() if not inspect.isabstract(value)}
    if not candidates:
        candidates = defined
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if not candidates:
        raise AgentFileError(
            f"{path} defines no agent; write a class that inherits from llamagym_tui.Agent."
        )
    raise AgentFileError(f"{path} defines several agents; {_offer(path, candidates)}")


def _offer(path: Path, classes: dict[str, type[AgentBase]]) -> str:
    """The end of a message: which classes the user can name."""
    if not classes:
        return "it defines no agent at all."
    specs = ", ".join(f"{path.name}:{name}" for name in sorted(classes))
    return f"name one: {specs}."


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
    for name, value in agent_class.baselines.items():
        if not isinstance(value, int | float) or not abs(value) <= LARGEST:
            raise AgentFileError(
                f"{where} has the baseline {name}: {value}; give it a number up to {LARGEST:.0e}."
            )
