"""A reply token by token: the records of `events.TurnInspected`.

Log-probabilities are in nats, at the temperature under which the reply was sampled.
"""

from typing import Any

from msgspec import Struct


class Alternative(Struct, frozen=True, kw_only=True):
    """A token that might have been sampled at a place."""

    token: int
    """Its id."""
    text: str
    probability: float
    """Under the policy as it is now."""
    admissible: bool
    """True if it leads on to a canonical reply of an action; nothing else is forbidden."""


class Decision(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A decision as PPO sees it: a sampled token, or a reply that was chosen by score."""

    old: float | None
    """Log-probability when it was made; None if somebody else made it."""
    new: float
    """Log-probability under the policy as it is now."""
    ref: float | None = None
    """Log-probability under the reference; None if it was not looked at."""
    ratio: float | None = None
    """exp(new - old); None if it is no decision by itself, or somebody else's."""
    clipped: bool | None = None
    """True if the update's objective is clipped here, so that there is no gradient; None before an update."""
    value: float | None = None
    """V before it that the update used; None before an update, or without a critic."""
    value_now: float | None = None
    """V before its turn, by the present weights. None: it is no decision by itself, or there is no critic."""
    target: float | None = None
    """The return that the update drew the value to, or took the advantage from; None before an update."""
    advantage: float | None = None
    """The advantage that the update used; None before an update."""


class PeerGroup(Struct, frozen=True, kw_only=True):
    """The group with which an estimator without a critic compared a turn or its episode."""

    peers: str
    """The noun for its members: "episodes of its seed"."""
    size: int
    """Members, itself included."""
    outcome: float
    """The return that was compared."""
    mean: float
    """Of all members."""
    spread: float
    """Their standard deviation."""


class InspectedToken(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A token of the reply."""

    token: int
    """Its id."""
    text: str
    decision: Decision
    alternatives: list[Alternative] = []
    """The most probable tokens at its place under the policy as it is now, its own and admissible ones among them;
    empty if they were not looked at."""


class ScoredReply(Struct, frozen=True, kw_only=True):
    """A reply that might have been chosen by its score."""

    text: str
    score: float
    """Its summed log-probability, normalised as configured, under the policy as it is now."""
    probability: float
    """The probability of choosing it, now."""
    chosen: bool


def token_text(tokenizer: Any, token: int) -> str:
    """A token as text: special ones by their names, the space before a word included."""
    text = str(tokenizer.decode([token], skip_special_tokens=False))
    # SentencePiece marks the space before a word, and leaves it out where it decodes one token alone.
    marked = str(tokenizer.convert_ids_to_tokens(token)).startswith("\u2581")
    return f" {text}" if marked and not text.startswith(" ") else text
