"""A grammar of wordings: words in capitals stand for one of several, so that one form is said in many ways.

One wording in eight, by its hash, is in no lesson, so that the model meets new sentences of known words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

from scripts.bundled_model.lessons import Chance

KEPT_FROM_LESSONS = 8
"""One wording of this many is in no lesson."""
SYMBOL = re.compile(r"\b[A-Z]{2,}\b")

# {x}, {y}: names of numbers; {n}, {m}: numbers; {w}: a word; {c}: a condition; {a}, {b}: what to do.
WORDS: dict[str, tuple[str, ...]] = {
    "IS": ("is", "is", "is", "lies", "stands", "is now", "is currently", "stays"),
    "NOW": ("", "", "", "now", "currently", "just now"),
    "LESS": ("below", "less than", "under", "lower than", "smaller than", "beneath"),
    "MORE": ("above", "more than", "over", "greater than", "larger than", "higher than", "bigger than", "beyond"),
    "LEAST": (
        "at least", "no less than", "not below", "not less than", "not under", "not lower than", "not smaller than",
        "no lower than",
    ),
    "MOST": (
        "at most", "no more than", "not above", "not more than", "not over", "not higher than", "not larger than",
        "no higher than", "not greater than",
    ),
    "UP": ("or more", "or higher", "or above", "or over", "or greater", "or larger", "and above", "and higher"),
    "DOWN": ("or less", "or lower", "or below", "or under", "or smaller", "and below", "and lower"),
    "SHORT": ("does not reach", "has not reached", "falls short of", "stays short of", "is yet to reach"),
    "REACHES": ("reaches", "has reached", "gets to", "comes to", "is up to"),
    "RANGE": ("in", "within", "in the range", "within the range", "inside"),
    "EQ": (
        "is", "equals", "is exactly", "is equal to", "=", "reads", "shows", "is just", "==", "is at", "is precisely",
        "stands at", "has the value",
    ),
    "ARE": ("are", "are", "are now", "are currently", "turn out"),
    "ALIKE": ("the same", "equal", "alike", "no different"),
    "EQTO": (
        "is the same as", "equals", "is equal to", "=", "is", "matches", "==", "is as large as", "does not differ from",
        "is just",
    ),
    "SUM": ("{x} plus {y}", "the sum of {x} and {y}", "{x} + {y}", "{y} plus {x}", "{x} added to {y}"),
    "CLOSE": ("nearer", "closer"),
    "FAR": ("farther", "further", "more distant"),
    "HAS": ("is", "shows", "reads", "has", "=", "holds", "says", "equals", "is a"),
    "IF": ("if", "when", "whenever", "as long as", "in case", "while", "where", "every time"),
    "ELSE": (
        "else", "otherwise", "if not,", "in all other cases", "in any other case", "when not,", "in every other case",
        "or else",
    ),
    "NEVER": ("never", "do not", "don't", "never ever", "you must not", "you should not"),
    "ALWAYS": (
        "always", "only", "just", "simply", "each time", "every time", "in every state", "whatever you see,",
        "whatever happens,", "you should always", "in any case", "please always",
    ),
    "EVER": (
        "every time", "all the time", "in every state", "each time", "no matter what", "whatever happens",
        "in any case", "always", "every single time",
    ),
    "SAY": ("reply with", "report", "name", "give", "answer with", "write", "return", "state"),
    "AS": ("as the action", "as your action", "as action", "in your reply"),
    "READ": ("read", "look at", "find", "take"),
    "GO": ("go", "move", "head", "step", "walk", "always go", "always move"),
    "TO": ("to", "towards", "to the"),
    "CHOOSE": ("choose", "take", "pick", "always choose", "always take"),
    "FIND": ("look for", "find", "search for"),
}  # fmt: skip


def worded(
    rng: Chance,
    forms: Sequence[str],
    *,
    extra: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Draw a wording of these forms that lessons may have.

    Forms of fewer than two choices are never kept back, so that each word stands in some of them; nor is the plainest
    wording, with which lessons begin.
    """
    words = {**WORDS, **(extra or {})}
    plainest = expanded(forms[0], lambda choices: choices[0], words)
    while True:
        form = rng.of(forms)
        text = expanded(form, rng.of, words)
        if not is_kept_back(text) or text == plainest or len(SYMBOL.findall(form)) < 2:
            return text


def expanded(
    form: str, of: Callable[[Sequence[str]], str], words: Mapping[str, Sequence[str]]
) -> str:
    text = SYMBOL.sub(lambda symbol: of(words[symbol[0]]), form)
    return re.sub(r" +", " ", text).replace(" ,", ",").strip()


def is_kept_back(text: str) -> bool:
    """True for a wording that is in no lesson, unless it is one of few."""
    return crc32(text.encode()) % KEPT_FROM_LESSONS == 0
