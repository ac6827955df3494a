"""Whose code may run: what a person typed on this machine may, what a run folder names only after a question.

A run folder that came from somebody else can name any Python file, or ``module:Id``, as its agent. A file or module
that this user once typed is trusted, edited or not; any other one by the content that the user agreed to.
"""

import contextlib

import msgspec
from msgspec import Struct

from llamagym_tui.errors import UntrustedAgent, UsageError
from llamagym_tui.setup.catalog import absolute_spec, agent_file
from llamagym_tui.user_files import REFUSED, data_dir, file_content, may_open, replace_file

FILE = "trusted_agents.json"
"""In the user's data folder."""


class _Trusted(Struct, frozen=True):
    typed: frozenset[str] = frozenset()
    """Absolute paths and modules."""
    hashes: frozenset[str] = frozenset()
    """SHA-256 of contents that were agreed to."""


def code_of(spec: str) -> str | None:
    """What an agent's spec would execute: an absolute path, or a module; None: nothing but what ships or is installed.

    Gymnasium imports the module of an id of the form ``module:Id``.
    """
    if file := agent_file(spec):
        return str(file.path)
    module, has_module, _ = spec.partition(":")
    return module if has_module else None


def remember_typed(spec: str) -> None:
    """Trust what a person typed; forgotten where the user's data folder cannot be written."""
    code = code_of(absolute_spec(spec))
    if code is not None and code not in (trusted := _read()).typed:
        with contextlib.suppress(OSError):
            _write(msgspec.structs.replace(trusted, typed=trusted.typed | {code}))


def require_trusted(spec: str) -> None:
    """Refuse an agent that a run folder names, unless its code is trusted.

    Raises:
        UntrustedAgent: it is not; `trust` is the answer yes.
        UsageError: its file cannot be read, or may not be in a browser session.
    """
    code, trusted = code_of(spec), _read()
    if code is not None and not may_open(absolute_spec(spec)):
        raise UsageError(REFUSED)
    if code is None or code in trusted.typed:
        return
    digest = _digest(spec)
    if digest not in trusted.hashes:
        raise UntrustedAgent(spec, code, digest)


def trust(untrusted: UntrustedAgent) -> None:
    """Agree to the code, as long as its content stays what was shown.

    Raises:
        UsageError: the agreement cannot be kept.
    """
    trusted = _read()
    try:
        _write(msgspec.structs.replace(trusted, hashes=trusted.hashes | {untrusted.digest}))
    except OSError as error:
        raise UsageError(
            f"That {untrusted.code} is trusted cannot be kept in {data_dir()} ({error.strerror or error}); "
            f"name the agent on the command line: {untrusted.spec}."
        ) from error


def _digest(spec: str) -> str:
    """SHA-256 of the file with its path, as its neighbours are imported too; of a module its name alone."""
    import hashlib  # costs the first frame otherwise

    file, content = agent_file(spec), b""
    if file is not None:
        try:
            content = file_content(file.path)
        except OSError as error:
            raise UsageError(
                f"The run's agent file {file.path} cannot be read: {error.strerror or error}."
            ) from error
    return hashlib.sha256(
        str(code_of(spec)).encode("utf-8", "surrogateescape") + b"\0" + content
    ).hexdigest()


def _read() -> _Trusted:
    try:
        return msgspec.json.decode(file_content(data_dir() / FILE), type=_Trusted)
    except (OSError, ValueError, RecursionError):
        return _Trusted()


def _write(trusted: _Trusted) -> None:
    replace_file(data_dir() / FILE, msgspec.json.encode(trusted) + b"\n")
