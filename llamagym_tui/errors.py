"""Errors, named for the boundary they crossed.

Each message is one sentence, or two, with what happened, where, and what to do next; the command line prints it.
"""

import os
from importlib.util import find_spec

MOST_WORDS = 300
"""Characters of somebody else's message that are repeated."""
_OURS = os.path.dirname(__file__)
_INSTALLED = {"site-packages", "dist-packages"}


class LlamaGymError(Exception):
    """Base of every error that this program raises on purpose."""


class UsageError(LlamaGymError):
    """The user asked for something that is not possible (an unknown agent, a missing file); exit code 2."""


class ConfigError(UsageError):
    """A setting is outside its range."""


class AgentFileError(UsageError):
    """A user's agent file does not load; the message names the file and the line."""


class UntrustedAgent(UsageError):
    """A run folder names code that this user has not agreed to execute."""

    def __init__(self, spec: str, code: str, digest: str) -> None:
        super().__init__(
            f"The run names an agent of its own, {code} (SHA-256 {digest[:16]}…), which would be executed; "
            f"read it, then add --trust-agent, or name it: {spec}."
        )
        self.spec = spec
        """The agent as the run folder names it."""
        self.code = code
        """The file or module that would be executed."""
        self.digest = digest
        """SHA-256 of that code: whoever agrees, agrees to this content alone."""


class ModelLoadError(LlamaGymError):
    """A model could not be found, reached or loaded."""


class ActionParseError(LlamaGymError):
    """A reply names no admissible action."""


class GeneratorError(LlamaGymError):
    """A server that samples replies gives no answer, or one that lacks something needed."""


class PromptTooLongError(LlamaGymError):
    """A prompt and the longest reply to it do not fit into the model's context."""


class EnvError(LlamaGymError):
    """An environment could not be made, or refused a reset or step."""


class DemoFileError(LlamaGymError):
    """A demonstration file is faulty; the message names the line."""


class WireError(LlamaGymError):
    """A frame on the pipe between the two processes is not what the protocol allows."""


class RunStoreError(LlamaGymError):
    """A run folder could not be made, read or resumed."""


class StoodStill(LlamaGymError):
    """An update left every weight where it was; the message has the cause."""


class RankLost(LlamaGymError):
    """One of the processes that train together has ended or does not answer."""


class NoModelError(LlamaGymError):
    """An agent that was made without a model was asked to act."""


RAISED = (Exception, SystemExit)
"""Exceptions of other people's code; its `sys.exit` does not end the program."""


def require_library(module: str, extra: str) -> None:
    """Check that the library of an extra is installed; raises UsageError if it is not."""
    if find_spec(module) is None:
        raise UsageError(f"{module} is not installed: pip install 'llamagym-tui[{extra}]'.")


def described(error: BaseException) -> str:
    """An error of other people's code in one line: its kind, its first line, and where it was raised."""
    words = str(error).strip().splitlines()
    kind = type(error).__name__
    what = f"{kind}: {words[0][:MOST_WORDS].rstrip('.')}" if words else kind
    return f"{what}{user_place(error)}"


def program_ended(error: SystemExit) -> AgentFileError:
    """The sentence for other people's code that tried to end the program."""
    return AgentFileError(f"Code of an agent or environment ended the program: {described(error)}.")


def user_place(error: BaseException) -> str:
    """Where other people's code raised an error, as the end of a sentence: `` (file.py, line 3)``.

    That is the innermost frame outside this package, Python's library and installed packages; empty if there is none.
    """
    import sysconfig
    import traceback

    python = f"{sysconfig.get_path('stdlib')}{os.sep}"
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        is_installed = not _INSTALLED.isdisjoint(file.split(os.sep))
        if not is_installed and not file.startswith((f"{_OURS}{os.sep}", "<", python)):
            place = f" ({file}, line {line})"
    return place
