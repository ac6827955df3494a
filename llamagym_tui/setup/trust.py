"""Which code may run: code that a person has named here may; code that only a run folder names, after a question.

A run folder that came from somebody else can name any Python file, or ``module:Id``, as its agent. A file or module
that this user has once typed is trusted, also after an edit; any other one only with the content that the user agreed
to.
"""

import contextlib

import msgspec

from llamagym_tui.errors import UntrustedAgent, UsageError
from llamagym_tui.setup.catalog import absolute_spec, agent_file, code_of
from llamagym_tui.user_files import REFUSED, data_dir, file_content, may_open, replace_file

FILE = "trusted_agents.json"
"""Name of the file in the user's data folder that keeps what is trusted."""


def remember_typed(spec: str) -> None:
    """Trust what a person typed from now on; only this once, if the user's data folder cannot be written."""
    code = code_of(absolute_spec(spec))
    if code is not None and code not in _trusted():
        with contextlib.suppress(OSError):
            _keep(code)


def require_trusted(spec: str) -> None:
    """Check that the code of an agent which a run folder names is trusted.

    Raises:
        UntrustedAgent: it is not; `trust` is how the user agrees to it.
        UsageError: its file cannot be read, or must not be read in a browser session.
    """
    code = code_of(spec)
    if code is None:
        return
    if not may_open(absolute_spec(spec)):
        raise UsageError(REFUSED)
    if code in _trusted():
        return
    digest = _digest(spec)
    if digest not in _trusted():
        raise UntrustedAgent(spec, code, digest)


def trust(untrusted: UntrustedAgent) -> None:
    """Trust the code as long as its content stays the one that was shown.

    Raises:
        UsageError: the agreement cannot be kept.
    """
    try:
        _keep(untrusted.digest)
    except OSError as error:
        raise UsageError(
            f"Your trust in {untrusted.code} cannot be kept in {data_dir()} ({error.strerror or error}); "
            f"name the agent on the command line: {untrusted.spec}."
        ) from error


def _digest(spec: str) -> str:
    """SHA-256 of a file's path and content, the path because it may import its neighbours; for a module, of its name
    alone."""
    import hashlib  # an import at the top would delay the first frame

    file = agent_file(spec)
    content = b""
    if file is not None:
        try:
            content = file_content(file.path)
        except OSError as error:
            raise UsageError(
                f"The run's agent file {file.path} cannot be read: {error.strerror or error}."
            ) from error
    code = str(code_of(spec)).encode("utf-8", "surrogateescape")
    return hashlib.sha256(code + b"\0" + content).hexdigest()


def _trusted() -> set[str]:
    """Paths and modules that the user has typed, and SHA-256 of the contents that the user has agreed to."""
    try:
        return msgspec.json.decode(file_content(data_dir() / FILE), type=set[str])
    except (OSError, ValueError, RecursionError):
        return set()


def _keep(code: str) -> None:
    replace_file(data_dir() / FILE, msgspec.json.encode(sorted({*_trusted(), code})) + b"\n")
