"""Search in everything that was said: a text, or a regular expression."""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import regex

from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.rollouts.index import SLICE_S, Rollouts
from llamagym_tui.rollouts.rollout import Entry

MOST_S = 0.5
"""Seconds that a regular expression may take in one text."""
BEFORE, AFTER = 10, 96
"""Characters around a match that are shown."""


class Pattern:
    """What is searched for."""

    def __init__(self, text: str) -> None:
        """A pattern as a person types it: literal, or a regular expression in slashes.

        Case counts if the text has a capital. Raises UsageError: the regular expression is none.
        """
        is_expression = len(text) > 2 and text.startswith("/") and text.endswith("/")
        source = text[1:-1] if is_expression else regex.escape(text)
        flags = regex.IGNORECASE if text == text.lower() else 0
        try:
            self._expression = regex.compile(source, flags)
        except regex.error as error:
            raise UsageError(f"{text} is no regular expression ({error}).") from error

    def find(self, text: str) -> tuple[int, int] | None:
        """The first match in a text, from its first character to the one after its last.

        Raises UsageError: the search takes too long.
        """
        try:
            match = self._expression.search(text, timeout=MOST_S)
        except TimeoutError as error:
            raise UsageError(
                "The regular expression takes too long in one of the texts: make it simpler."
            ) from error
        return match.span() if match else None


class Found(NamedTuple):
    """A rollout in which something was found."""

    entry: Entry
    words: str
    """What surrounds the first match, on one line."""
    start: int
    """Where the match begins in these words."""
    stop: int


def search(
    rollouts: Rollouts, entries: Sequence[Entry], pattern: Pattern
) -> Iterator[Found | None]:
    """The rollouts in which something is found, in order; None every `SLICE_S` seconds, so that a caller may stop.

    Raises as `Pattern.find`. A rollout that cannot be read is passed over.
    """
    told_at = time.monotonic()
    for entry in entries:
        try:
            rollout = rollouts.rollout(entry)
        except LlamaGymError:
            continue
        for said in rollout.messages:
            if span := pattern.find(said.whole):
                start, stop = span
                first = max(0, start - BEFORE)
                words = said.whole[first : stop + AFTER].replace("\n", " ")
                yield Found(entry, words, start - first, stop - first)
                break
        if time.monotonic() - told_at > SLICE_S:
            told_at = time.monotonic()
            yield None
