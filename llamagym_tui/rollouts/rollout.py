"""A rollout of anybody's trainer, as its file has it: what was said and what it earned, by token if that is known.

A field that a format does not have is None or empty.
"""

from typing import Any

from msgspec import Struct

Record = dict[str, Any]
"""What a file has of a rollout, or of several."""

OPENING = 96
"""Characters of a rollout that its line in a list has."""


class Token(Struct, frozen=True, gc=False):
    """A token that the policy sampled. Log-probabilities are in nats."""

    text: str
    logprob: float | None = None
    """Under the policy that sampled it."""
    reference: float | None = None
    """Log-probability under the reference."""
    advantage: float | None = None


class Said(Struct, frozen=True, gc=False):
    """A message of the conversation."""

    role: str
    """``system``, ``user``, ``assistant`` or ``tool``, or as the file has it."""
    text: str
    """A thought stands in it between its tags."""
    calls: tuple[str, ...] = ()
    """Calls of tools, each as ``name(arguments)``."""
    reward: float | None = None
    """What this turn earned."""
    tokens: tuple[Token, ...] = ()
    """The tokens of the message that the policy sampled, in order."""
    note: str = ""
    """What the file says of the message, for people: how its action was read."""

    @property
    def whole(self) -> str:
        """Its text and its calls, a line each."""
        return "\n".join(filter(None, (self.text, *self.calls)))


class Rollout(Struct, frozen=True, gc=False):
    """A conversation that a policy had with an environment."""

    messages: tuple[Said, ...]
    step: int | None = None
    """The step of training for which it was sampled, as the file counts."""
    group: str = ""
    """Rollouts of a step with the same group were compared with each other; by default, those of the same prompt."""
    reward: float | None = None
    """The reward of the whole rollout, or the sum of its turns' rewards."""
    advantage: float | None = None
    """The one advantage of all its tokens."""
    facts: tuple[tuple[str, str], ...] = ()
    """What else the file says, by name: parts of the reward, the expected answer."""

    @property
    def said(self) -> str:
        """What the policy said: its messages with their calls, joined by line ends."""
        own = (each.whole for each in self.messages if each.role == "assistant")
        return "\n".join(filter(None, own))


class Entry(Struct, frozen=True, gc=False):
    """A rollout in the index: what lists and figures need, and where the whole of it stands."""

    source: int
    """Index of its source in `Rollouts.sources`."""
    place: int
    """Where its record stands there, as the source counts: a byte, or a row."""
    at: int
    """Index among the rollouts of this record."""
    step: int | None
    group: int
    """The same number for the rollouts of a group."""
    reward: float | None
    advantage: float | None
    length: int
    """Tokens that the policy sampled, where they are known, else characters."""
    opening: str
    """The first characters of what the policy said, at most `OPENING`."""
