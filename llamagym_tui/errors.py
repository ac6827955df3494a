"""Errors, named for the boundary they crossed.

Each message is one sentence, or two, with what happened, where, and what to do next; the command line
prints it as it is. Causes are chained with ``from``.
"""


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


class ModelTooLargeError(UsageError):
    """A run would take more memory than there is; the message names what would fit."""


class ActionParseError(LlamaGymError):
    """A reply names no admissible action."""


class EnvError(LlamaGymError):
    """An environment could not be made, or refused a reset or step."""


class DemoFileError(LlamaGymError):
    """A demonstration file is faulty; the message names the line."""


class PromptFileError(LlamaGymError):
    """A file with a system prompt cannot be read or written."""


class WireError(LlamaGymError):
    """A frame on the pipe between the two processes is not what the protocol allows."""


class TrainerDied(LlamaGymError):
    """The trainer process ended without being stopped."""


class RunStoreError(LlamaGymError):
    """A run folder could not be made, read or resumed."""


class ShapeMismatch(LlamaGymError):
    """Tensors that belong together differ in shape."""


class NoModelError(LlamaGymError):
    """An agent made without a model was to act."""
