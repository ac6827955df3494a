"""What rollouts have in common: words that many of them repeat, and how far they are alike."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from os.path import commonprefix
from typing import NamedTuple

from llamagym_tui.rollouts.rollout import Rollout

WORD = re.compile(r"\w+|[^\w\s]")


class Repeated(NamedTuple):
    """Three words in a row."""

    words: str
    """As they were first written."""
    share: float
    """Share of the rollouts in which the policy said them."""


def repeated(rollouts: Iterable[Rollout], least: int = 2) -> list[Repeated]:
    """The trigrams that `least` rollouts or more share, most first, each counted once in a rollout.

    At least two of the three have letters or digits; punctuation repeats anyway.
    A policy that collapses says the same in all of them long before its reward falls.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    total = 0
    for rollout in rollouts:
        words = WORD.findall(rollout.said)
        counts.update(set(zip(words, words[1:], words[2:], strict=False)))
        total += 1
    return [
        Repeated(" ".join(words), count / total)
        for words, count in counts.most_common()
        if count >= least and sum(any(map(str.isalnum, word)) for word in words) > 1
    ]


def common_start(texts: Sequence[str]) -> int:
    """The number of characters with which all texts begin; a word that only begins alike does not count."""
    start = commonprefix(texts)  # noqa: RUF071 -- characters are meant
    if all(text == start for text in texts):
        return len(start)
    return len(start) - len(re.split(r"\s", start)[-1])
