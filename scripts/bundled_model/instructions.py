"""Instructions: sentences that say what to do in which state, in the many wordings of `grammar`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from scripts.bundled_model.conditions import Condition, Numbers, State, condition, simple
from scripts.bundled_model.grammar import worded
from scripts.bundled_model.lessons import MOST_HINTS, Chance, Mark

Act = Callable[[State], int]


class Instruction(NamedTuple):
    text: str
    act: Act
    kind: str
    told: Callable[[State], bool] | None = None
    """What decides it, to draw states on both of its sides; None: nothing does."""
    actions: tuple[int, ...] = ()
    """The actions that it names, in the order of the condition: where it holds, where it does not."""
    of: tuple[str | int, ...] = ()
    """Features and limits that it compares."""
    phrases: tuple[str, ...] = ()
    """How it names the actions."""
    steps: Callable[[State], tuple[int | bool, ...]] = lambda state: ()
    """What is worked out on the way, up to two results."""

    def hints(self, state: State) -> tuple[str, ...]:
        """What following it takes, read off the deciding token by auxiliary heads: '' where there is nothing."""
        truth = "" if self.told is None or self.kind == "stepwise" else _word(self.told(state))
        steps = [_word(each) for each in self.steps(state)]
        actions = [str(each) for each in self.actions]
        compared = [str(state.get(each, "") if isinstance(each, str) else each) for each in self.of]
        return (truth, self.less(state), *(*actions, "", "")[:2], *(*steps, "", "")[:2], *compared)[
            :MOST_HINTS
        ]

    def less(self, state: State) -> str:
        """Whether the first of two numbers that it compares is the less: yes, no, or '' where it compares none."""
        numbers = [state.get(each, "") if isinstance(each, str) else each for each in self.of[:2]]
        if len(numbers) < 2 or not all(isinstance(each, int) for each in numbers):
            return ""
        return _word(int(numbers[0]) < int(numbers[1]))

    def marks(self, shown: str, state: State) -> tuple[Mark, ...]:
        """In an observation, whose numbers are the state's, in its order."""
        of = [each for each in self.of if isinstance(each, str)]
        truth, less = (self.hints(state)[0], self.less(state)) if len(of) == 1 else ("", "")
        names = [name for name, value in state.items() if isinstance(value, int)]
        if not self.of and self.told is not None:
            return ()
        found = list(NUMBER.finditer(shown))
        if len(found) != len(names):
            return ()
        return tuple(
            Mark(each.end() - 1, "yes", truth, less) if name in of else Mark(each.end() - 1, "no")
            for name, each in zip(names, found, strict=True)
        )

    def own_marks(self, text: str, state: State | None = None) -> tuple[Mark, ...]:
        """In a text that holds the instruction; what its limit decides, if `state` came before it."""
        start = text.rfind(self.text)
        parts = list(zip(self.phrases, self.actions, ("yes", "no", ""), strict=False))
        named = sorted(
            (
                at,
                len(phrase),
                Mark(at + len(phrase) - 1, index=str(action), role=role if self.of else ""),
            )
            for phrase, action, role in parts
            for at in _places(phrase.lower(), text.lower(), start)
        )
        marks = [mark for _, _, mark in named]
        limits = [each for each in self.of if isinstance(each, int)]
        if state is not None and len(limits) == 1 == len(self.of) - 1:
            taken = {mark.at for mark in marks}
            numbers = [
                each.end() - 1
                for each in NUMBER.finditer(text, start)
                if each.end() - 1 not in taken
            ]
            marks += [
                Mark(at, holds=self.hints(state)[0], less=self.less(state))
                for at in numbers
                if len(numbers) == 1
            ]
        return tuple(marks)


def _word(result: int | bool) -> str:
    if isinstance(result, bool):
        return "yes" if result else "no"
    return str(result) if result < 100 else ""


NUMBER = re.compile(r"\b\d+\b")
SENTENCE = re.compile(r"(?:^|(?<=[.] ))[a-z]")


def _places(phrase: str, text: str, start: int) -> list[int]:
    return [each.start() for each in re.compile(rf"\b{re.escape(phrase)}\b").finditer(text, start)]


# {c} is a condition, {a} what to do where it holds, {b} what to do where it does not.
EITHER = (
    "IF {c}, {a}, ELSE {b}.", "IF {c} {a}, ELSE {b}.", "IF {c} then {a}, ELSE {b}.", "{a} IF {c}, ELSE {b}.",
    "IF {c}, {a}; ELSE {b}.", "{a} IF {c}; ELSE {b}.", "IF {c}, {a}. ELSE {b}.", "{a} IF {c}. ELSE {b}.",
    "{a} IF {c}, and {b} ELSE.", "{b} unless {c}: then {a}.", "{b}, but IF {c}, {a}.", "unless {c}, {b}, ELSE {a}.",
    "{a} only IF {c}, ELSE {b}.", "unless {c} {b}; ELSE {a}.", "{b} IF it is not so that {c}, ELSE {a}.",
    "{b} unless {c}, ELSE {a}.", "choose to {a} IF {c}, choose to {b} ELSE.", "you should {a} IF {c}, ELSE {b}.",
)  # fmt: skip
# Where there are two actions, the other one goes without saying.
ALONE = (
    "{a} IF {c}.", "{a} only IF {c}.", "IF {c}, {a}.", "{b} unless {c}.", "IF {c} {a}.", "only {a} IF {c}.",
    "NEVER {b} IF {c}.", "unless {c}, {b}.", "IF {c}, NEVER {b}.", "you should {a} IF {c}.", "please {a} IF {c}.",
    "{b} only IF it is not so that {c}.", "IF {c} please {a}.", "unless {c} NEVER {a}.",
)  # fmt: skip
ALWAYS = (
    "{a}.", "ALWAYS {a}.", "{a} EVER.", "ALWAYS {a}, NEVER {b}.", "NEVER {b}, ALWAYS {a}.", "{a} EVER, NEVER {b}.",
    "ALWAYS {a} EVER.", "NEVER {b}. ALWAYS {a}.", "{a}, NEVER {b}.", "do nothing but {a} EVER.", "NEVER {b}, {a} EVER.",
    "ALWAYS {a} and NEVER {b}.", "keep to this: {a} EVER.", "{a} EVER. NEVER {b}.",
)  # fmt: skip
NO = (
    "NEVER {b}.",
    "NEVER {b} EVER.",
    "NEVER {b} at all.",
    "EVER NEVER {b}.",
    "EVER do anything but {b}.",
)
REPORT = (
    "The {x}?", "SAY the {x}.", 'Reply with {{"action": n}}, where n is the {x}.', "SAY the {x} AS.", "{x}?",
    "READ the {x} and SAY it.", "What is the {x} NOW?", 'SAY {{"action": n}}, where n is the {x}.',
    'SAY {{"action": n}}; n is the {x}.', "ALWAYS SAY the {x}.", "The action NOW is the {x}.",
    "READ the {x}, and SAY it AS.", "Your action NOW is the {x}.", "SAY what the {x} NOW is.",
    "ALWAYS READ the {x} and SAY it.", "{x}, AS?",
)  # fmt: skip
FOLLOW = (
    "GO TO {w}.", "GO where {w} is.", "CHOOSE what shows {w}.", "CHOOSE what has {w}.", "FIND {w} and GO there.",
    "CHOOSE the one with {w}.", "CHOOSE the way TO {w}.", "GO TO where {w} is.", "FIND {w} and CHOOSE it.",
    "FIND the {w} and GO TO it.",
)  # fmt: skip


def phrases(rng: Chance, names: Sequence[str]) -> list[str]:
    """How actions are named in instructions, all in one way."""
    if all(name.isdigit() for name in names) or rng.random() < 0.25:
        form = rng.of(
            ("choose {}", "take {}", "reply {}", "choose action {}", "play {}", "use {}", "do {}")
        )
        return [form.format(index) for index in range(len(names))]
    form = rng.of(("{}", "{}", "{}", "{}", "{}", "{}", "go {}", "choose {}", "do {}", "push {}"))
    return [form.format(name) for name in names]


def filled(form: str, **parts: str) -> str:
    """A form filled in, with capitals where sentences begin."""
    return SENTENCE.sub(
        lambda found: found[0].upper(), re.sub(r",(?=[.;:])", "", form.format(**parts))
    )


def either(
    rng: Chance,
    of: Numbers,
    names: Sequence[str],
    *,
    kind: str = "",
    told: Condition | None = None,
) -> Instruction:
    """One action where a condition, `told` or a new one, holds, another one where it does not."""
    if told is None:
        told = simple(rng, of, kind=kind) if kind else condition(rng, of)
    here, there = rng.sample(range(len(names)), 2)
    does = phrases(rng, names)
    forms = ALONE if len(names) == 2 and rng.random() < 0.4 * rng.variety else EITHER
    text = filled(worded(rng, forms), c=told.text, a=does[here], b=does[there])
    return Instruction(
        text,
        lambda state: here if told.holds(state) else there,
        told.kind,
        told.holds,
        (here, there),
        told.of,
        (does[here], does[there]),
        told.steps,
    )


def stepwise(rng: Chance, of: Numbers, names: Sequence[str]) -> Instruction:
    """Three actions by two conditions, the first of which comes first."""
    first, second = (simple(rng, of) for _ in range(2))
    one, two, three = rng.sample(range(len(names)), 3)
    does = phrases(rng, names)
    form = rng.choice(
        (
            "If {c}, {a}; else if {d}, {b}; else {e}.", "If {c} {a}, if {d} {b}, else {e}.",
            "When {c}, {a}. Otherwise, when {d}, {b}. Otherwise {e}.", "{a} if {c}, {b} if {d}, else {e}.",
        )
    )  # fmt: skip
    text = filled(form, c=first.text, d=second.text, a=does[one], b=does[two], e=does[three])

    def act(state: State) -> int:
        if first.holds(state):
            return one
        if second.holds(state):
            return two
        return three

    return Instruction(
        text,
        act,
        "stepwise",
        first.holds if rng.random() < 0.5 else second.holds,
        (one, two, three),
        first.of + second.of,
        (does[one], does[two], does[three]),
        lambda state: (first.holds(state), second.holds(state)),
    )


def always(rng: Chance, names: Sequence[str]) -> Instruction:
    here, there = rng.sample(range(len(names)), 2)
    does = phrases(rng, names)
    forms = NO if len(names) == 2 and rng.random() < 0.4 * rng.variety else ALWAYS
    text = filled(worded(rng, forms), a=does[here], b=does[there])
    return Instruction(
        text, lambda state: here, "always", None, (here, there), (), (does[here], does[there])
    )


def report(rng: Chance, of: Numbers) -> Instruction:
    """The action is one of the numbers, so that each of them reaches the token that decides."""
    name = rng.choice(list(of.ranges))
    text = filled(worded(rng, REPORT), x=name)
    return Instruction(text, lambda state: int(state[name]), "report", of=(name,))


def follow(rng: Chance, words: Mapping[str, Sequence[str]], names: Sequence[str]) -> Instruction:
    """Take the action at whose name a word stands; the first one of these, if it is at several or none."""
    word = rng.choice(sorted({word for each in words.values() for word in each}))
    text = filled(worded(rng, FOLLOW), w=word)

    def act(state: State) -> int:
        return next((at for at, name in enumerate(names) if state.get(name) == word), 0)

    return Instruction(
        text, act, "follow", lambda state: any(state.get(name) == word for name in names)
    )
