"""Conditions on numbers and words: what an instruction can depend on.

A condition is a text, in one of the many wordings of `grammar`, and what it means, as a function of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import eq, gt
from typing import NamedTuple

from scripts.bundled_model.grammar import worded
from scripts.bundled_model.lessons import Chance

State = Mapping[str, int | str]
Meaning = Callable[[State], bool]


class Condition(NamedTuple):
    text: str
    holds: Meaning
    kind: str
    of: tuple[str | int, ...] = ()
    """Features and limits that it compares: what auxiliary heads read."""
    steps: Callable[[State], tuple[int | bool, ...]] = lambda state: ()
    """What is worked out on the way, up to two results."""


# {x} and {y} name numbers, {n} and {m} are numbers; {n-1} and {n+1} are the neighbours of n.
BELOW = (
    "{x} IS LESS {n}", "{x} IS LESS {n}", "{x} IS MOST {n-1}", "{x} IS {n-1} DOWN", "{x} < {n}", "{n} IS MORE {x}",
    "{x} NOW SHORT {n}", "{x} <= {n-1}", "{x} IS not {n} UP",
)  # fmt: skip
FROM = (
    "{x} IS MORE {n-1}", "{x} IS LEAST {n}", "{x} IS {n} UP", "{x} > {n-1}", "{n-1} IS LESS {x}", "{x} NOW REACHES {n}",
    "{x} >= {n}", "{x} IS not {n-1} DOWN",
)  # fmt: skip
BETWEEN = (
    "{x} IS between {n} and {m}", "{x} IS from {n} to {m}", "{x} IS LEAST {n} and MOST {m}", "{n} <= {x} <= {m}",
    "{x} IS RANGE {n} to {m}", "{x} IS MORE {n-1} and LESS {m+1}", "{x} IS MORE {n-1} but LESS {m+1}",
    "{x} IS neither LESS {n} nor MORE {m}", "{x} IS not outside {n} to {m}", "{x} IS LESS {m+1} and LEAST {n}",
)  # fmt: skip
EQUALS = ("{x} NOW EQ {n}", "{n} IS {x}", "{x} and {n} ARE ALIKE", "{n} EQ {x}", "{x} EQTO {n}")
LARGER = (
    "{x} IS MORE {y}", "{y} IS LESS {x}", "{x} > {y}", "{y} < {x}", "{x} NOW exceeds {y}", "{y} NOW SHORT {x}",
)  # fmt: skip
SAME = (
    "{x} and {y} ARE ALIKE",
    "{x} NOW EQTO {y}",
    "{x} EQ {y}",
    "{y} and {x} ARE ALIKE",
    "{y} EQTO {x}",
)
SUM_BELOW = (
    "SUM IS LESS {n}", "SUM < {n}", "SUM IS MOST {n-1}", "SUM IS {n-1} DOWN", "SUM NOW SHORT {n}",
    "{x} and {y} together are LESS {n}", "{x} and {y} NOW make LESS {n}", "{x} and {y} add up to LESS {n}",
)  # fmt: skip
NEARER = (
    "{x} IS CLOSE to {n} than to {m}", "{n} IS CLOSE to {x} than {m}", "of {n} and {m}, {x} IS CLOSE to {n}",
    "{x} IS FAR from {m} than from {n}", "{m} IS FAR from {x} than {n}", "of {n} and {m}, {n} IS CLOSE to {x}",
    "{x} IS less far from {n} than from {m}", "{x} IS CLOSE to {n} and FAR from {m}",
)  # fmt: skip
BOTH = ("{} and {}", "both {} and {}", "{} and also {}", "{} while {}")
EITHER = ("{} or {}", "either {} or {}", "{} or else {}", "at least one holds: {} or {}")
WORD = (
    "{x} NOW HAS {w}",
    "there NOW is {w} at {x}",
    "you NOW see {w} at {x}",
    "{w} IS at {x}",
    "{w} NOW HAS {x}",
)


def said(form: str, **parts: int | str) -> str:
    """A form filled in; the words of a number get an article now and then by the caller."""
    for name in ("n", "m"):
        if isinstance(value := parts.get(name), int):
            form = form.replace(f"{{{name}-1}}", str(value - 1)).replace(
                f"{{{name}+1}}", str(value + 1)
            )
    return form.format(**parts)


class Numbers(NamedTuple):
    """The features of a world that conditions may be about."""

    ranges: Mapping[str, tuple[int, int]]
    """Least and largest of each number."""
    words: Mapping[str, Sequence[str]]
    """What each feature of words may be."""


Maker = Callable[[Chance, Numbers], Condition]


def simple(rng: Chance, of: Numbers, *, kind: str = "") -> Condition:
    """A condition on one or two features."""
    if of.words and not kind and rng.random() < (0.3 if of.ranges else 1.0):
        return _word(rng, of)
    kinds = ["below", "from", "between", "equals", "nearer"] + (
        ["larger", "same", "sum"] if len(of.ranges) > 1 else []
    )
    weights = [5, 5, 2, 1, 3, 3, 1, 3]
    kind = kind or rng.choices(kinds, weights[: len(kinds)])[0]
    return MAKERS[kind](rng, of)


def _article(rng: Chance, name: str) -> str:
    return f"the {name}" if rng.random() < 0.6 else name


def _inner(rng: Chance, low: int, high: int) -> int:
    """A limit with something on both of its sides."""
    return rng.randint(low + 1, high)


def _one(rng: Chance, of: Numbers) -> tuple[str, int, int]:
    name = rng.choice(list(of.ranges))
    return name, *of.ranges[name]


def _below(rng: Chance, of: Numbers) -> Condition:
    name, low, high = _one(rng, of)
    n = _inner(rng, low, high)
    text = said(worded(rng, BELOW), x=_article(rng, name), n=n)
    return Condition(text, lambda state: int(state[name]) < n, "below", (name, n))


def _from(rng: Chance, of: Numbers) -> Condition:
    name, low, high = _one(rng, of)
    n = _inner(rng, low, high)
    text = said(worded(rng, FROM), x=_article(rng, name), n=n)
    return Condition(text, lambda state: int(state[name]) >= n, "from", (name, n))


def _between(rng: Chance, of: Numbers) -> Condition:
    name, low, high = _one(rng, of)
    n, m = sorted((rng.randint(low, high), rng.randint(low, high)))
    text = said(worded(rng, BETWEEN), x=_article(rng, name), n=n, m=m)
    return Condition(
        text,
        lambda state: n <= int(state[name]) <= m,
        "between",
        (name, n, m),
        lambda state: (int(state[name]) < n, int(state[name]) <= m),
    )


def _equals(rng: Chance, of: Numbers) -> Condition:
    name, low, high = _one(rng, of)
    n = rng.randint(low, high)
    text = said(worded(rng, EQUALS), x=_article(rng, name), n=n)
    return Condition(text, lambda state: int(state[name]) == n, "equals", (name, n))


def _nearer(rng: Chance, of: Numbers) -> Condition:
    name, low, high = _one(rng, of)
    n, m = rng.randint(low, high), rng.randint(low, high)
    while n == m:
        m = rng.randint(low, high)
    text = said(worded(rng, NEARER), x=_article(rng, name), n=n, m=m)
    return Condition(
        text,
        lambda state: abs(int(state[name]) - n) < abs(int(state[name]) - m),
        "nearer",
        (name, n, m),
        lambda state: (abs(int(state[name]) - n), abs(int(state[name]) - m)),
    )


def _pair(rng: Chance, of: Numbers) -> tuple[str, str]:
    one, other = rng.sample(list(of.ranges), 2)
    return one, other


def _of_pair(kind: str, forms: Sequence[str], holds: Callable[[int, int], bool]) -> Maker:
    """Makes conditions that compare two numbers with each other."""

    def made(rng: Chance, of: Numbers) -> Condition:
        x, y = _pair(rng, of)
        text = said(worded(rng, forms), x=_article(rng, x), y=_article(rng, y))
        return Condition(text, lambda state: holds(int(state[x]), int(state[y])), kind, (x, y))

    return made


def _sum(rng: Chance, of: Numbers) -> Condition:
    x, y = _pair(rng, of)
    low, high = (of.ranges[x][at] + of.ranges[y][at] for at in (0, 1))
    n = min(_inner(rng, low, high), 99)
    text = said(worded(rng, SUM_BELOW), x=_article(rng, x), y=_article(rng, y), n=n)
    return Condition(
        text,
        lambda state: int(state[x]) + int(state[y]) < n,
        "sum",
        (x, y, n),
        lambda state: (int(state[x]) + int(state[y]),),
    )


def _word(rng: Chance, of: Numbers) -> Condition:
    name = rng.choice(list(of.words))
    word = rng.choice(list(of.words[name]))
    text = said(worded(rng, WORD), x=name, w=word)
    return Condition(text, lambda state: state[name] == word, "word", (name,))


MAKERS: Mapping[str, Maker] = {
    "below": _below, "from": _from, "between": _between, "equals": _equals, "nearer": _nearer,
    "larger": _of_pair("larger", LARGER, gt), "same": _of_pair("same", SAME, eq), "sum": _sum, "word": _word,
}  # fmt: skip


def condition(rng: Chance, of: Numbers) -> Condition:
    """A simple condition, its negation, or two of them joined."""
    roll = rng.random()
    first = simple(rng, of)
    if roll < 0.7:
        return first
    if roll < 0.8:
        form = rng.choice(
            ("it is not true that {}", "not {}", "it is false that {}", "it is not so that {}")
        )
        return Condition(
            form.format(first.text),
            lambda state: not first.holds(state),
            "not",
            first.of,
            lambda state: (first.holds(state),),
        )
    kind, forms = ("and", BOTH) if roll < 0.9 else ("or", EITHER)
    second = simple(rng, of)
    return joined(kind, rng.choice(forms), first, second)


def joined(kind: str, form: str, first: Condition, second: Condition) -> Condition:
    """Two conditions in a form: both have to hold ("and"), or one of them ("or")."""
    needs = {"and": all, "or": any}[kind]

    def steps(state: State) -> tuple[bool, bool]:
        return first.holds(state), second.holds(state)

    text = form.format(first.text, second.text)
    return Condition(text, lambda state: needs(steps(state)), kind, first.of + second.of, steps)
