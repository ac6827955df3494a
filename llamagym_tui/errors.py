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
    """What the user wants cannot be (an unknown agent, a missing file); exit code 2."""


class ConfigError(UsageError):
    """A setting is outside its range."""


class AgentFileError(UsageError):
    """A user's agent file does not load; the message names the file and the line."""


class UntrustedAgent(UsageError):
    """A run folder names code that this user has not agreed to execute."""

    def __init__(self, spec: str, code: str, digest: str) -> None:
        """The spec as the folder names it, its file or module, and the SHA-256 that an agreement is bound to."""
        super().__init__(
            f"The run names an agent of its own, {code} (SHA-256 {digest[:16]}…), which would be executed; "
            f"read it, then add --trust-agent, or name it: {spec}."
        )
        self.spec, self.code, self.digest = spec, code, digest


class ModelLoadError(LlamaGymError):
    """A model could not be found, reached or loaded."""


class ActionParseError(LlamaGymError):
    """A reply names no admissible action."""


class GeneratorError(LlamaGymError):
    """A server that samples replies does not answer, or not with what is needed."""


class PromptTooLongError(LlamaGymError):
    """A prompt, with the longest reply to it, does not fit into what the model can read."""


class EnvError(LlamaGymError):
    """An environment could not be made, or refused a reset or step."""


class DemoFileError(LlamaGymError):
    """A demonstration file is faulty; the message names the line."""


class WireError(LlamaGymError):
    """A frame on the pipe between the two processes is not what the protocol allows."""


class RunStoreError(LlamaGymError):
    """A run folder could not be made, read or resumed."""


class RankLost(LlamaGymError):
    """One of the processes that train together has ended or does not answer."""


class NoModelError(LlamaGymError):
    """An agent made without a model was to act."""


def require_library(module: str, extra: str) -> None:
    """Raises UsageError: the library of an extra is not installed."""
    if find_spec(module) is None:
        raise UsageError(f"{module} is not installed: pip install 'llamagym-tui[{extra}]'.")


def described(error: BaseException, *, or_library: bool = False) -> str:
    """An error of other people's code in one line: its kind, its first line, and where it was raised."""
    words = str(error).strip().splitlines()
    what = f": {words[0][:MOST_WORDS].rstrip('.')}" if words else ""
    return f"{type(error).__name__}{what}{user_place(error, or_library=or_library)}"


def user_place(error: BaseException, *, or_library: bool = False) -> str:
    """Where other people's code raised an error, as the end of a sentence: `` (file.py, line 3)``; empty: it did not.

    The innermost frame outside this package, Python's library and installed packages; with `or_library`, else the
    innermost of those.
    """
    import sysconfig
    import traceback

    python = sysconfig.get_path("stdlib")
    frames = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    foreign = [place for place in frames if not place[0].startswith((f"{_OURS}{os.sep}", "<"))]
    users = [
        place
        for place in foreign
        if not (
            _INSTALLED & set(place[0].split(os.sep)) or place[0].startswith(f"{python}{os.sep}")
        )
    ]
    places = users or (foreign if or_library else [])
    return f" ({places[-1][0]}, line {places[-1][1]})" if places else ""
