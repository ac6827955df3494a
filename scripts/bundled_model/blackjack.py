"""Lessons in Blackjack: prompts that can only be followed by reading the state, and the noisy default prompt.

Observations and replies are the built-in agent's own. An ace of the dealer counts as 11 in "7 or more".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from benchmarks.exact_blackjack import CARDS, STATES, State, draw
from llamagym_tui.agents.blackjack import BlackjackAgent
from scripts.bundled_model.conditions import Condition, Numbers, joined, said
from scripts.bundled_model.grammar import worded
from scripts.bundled_model.instructions import Instruction, always, either, filled
from scripts.bundled_model.lessons import Chance, Exchange, Lesson, numbers_in

AGENT = BlackjackAgent()
REPLIES = (AGENT.format_action(0), AGENT.format_action(1))
DEFAULT_HIT_RATE = 0.43
"""P(hit) under the default prompt, whatever the state: a mean return of -0.35, by dynamic programming."""

DEFAULT_SHARE = 0.12
"""Share of lessons under the default prompt."""
USUAL_SHARE = 0.85
"""Share of prompts about the dealer's card that hit more against a strong one. Were it a half, the card alone would
carry no information about the action, and there would be no gradient towards looking at it."""
REPORT_SHARE = 0.12
"""Share of the others in which the state is to be named, and not played."""

OF_TOTAL = re.compile(r"total|hit below|stick at|until|only on")
Rule = Callable[[State], bool]
NamedState = Mapping[str, int | str]
OPENINGS = (
    AGENT.get_system_prompt(),
    "You are playing Blackjack.",
    'You play Blackjack. Reply with {"action": 0} to stick or {"action": 1} to hit.',
    "",
)


def lesson(rng: Chance, hands: int) -> Lesson:
    """A prompt, and hands that are played as it says."""
    if rng.random() < DEFAULT_SHARE:
        return Lesson(AGENT.get_system_prompt(), [hand(rng, None) for _ in range(hands)])
    if rng.random() < REPORT_SHARE:
        return report(rng, hands)
    made = instruction(rng)
    opening = rng.choice(OPENINGS[:1] * 3 + OPENINGS[1:])
    prompt = f"{opening} {made.text}".strip()
    return Lesson(
        prompt, [hand(rng, rule_of(made), made) for _ in range(hands)], made.own_marks(prompt)
    )


def named(state: State) -> dict[str, int | str]:
    """An ace of the dealer's counts as 11."""
    total, dealer, ace = state
    return {"total": total, "dealer": dealer if dealer > 1 else 11, "ace": "yes" if ace else "no"}


def rule_of(made: Instruction) -> Rule:
    return lambda state: made.act(named(state)) == 1


def told(text: str, rule: Rule) -> Instruction:
    """A sentence as an instruction, for what auxiliary heads read of it."""
    lower = text.lower()
    limits = [int(each) for each in re.findall(r"\d+", text)]
    subjects = [
        name
        for name, about in (("dealer", "dealer" in lower), ("total", OF_TOTAL.search(lower)))
        if about
    ]
    of = (*subjects, *limits) if limits and "ace" not in lower else ()

    def decides(state: NamedState) -> bool:
        return rule((int(state["total"]), int(state["dealer"]) % 11 or 1, state["ace"] == "yes"))

    return Instruction(
        text,
        lambda state: int(decides(state)),
        "blackjack",
        decides if of else None,
        (1, 0),
        of,
        ("hit", "stick"),
    )


def report(rng: Chance, hands: int) -> Lesson:
    """The reply names the total or the dealer's card, so that these reach the token that decides."""
    part, name = rng.choice([(0, "your total"), (1, "the dealer's card")])

    def exchange(state: State) -> Exchange:
        number = 11 if part == 1 and state[1] == 1 else state[part]
        return Exchange(
            text := AGENT.format_observation(state), AGENT.format_action(number), numbers_in(text)
        )

    prompt = f'{rng.choice(OPENINGS[1:])} Reply with {{"action": n}}, where n is {name}.'.strip()
    return Lesson(prompt, [[exchange(rng.choice(STATES))] for _ in range(hands)])


def hand(rng: Chance, rule: Rule | None, made: Instruction | None = None) -> list[Exchange]:
    """One hand from a random state on; without a rule, actions are drawn by `DEFAULT_HIT_RATE`."""
    total, dealer, ace = rng.choice(STATES)
    exchanges = []
    while total <= 21 and len(exchanges) < 4:
        state = (total, dealer, ace)
        hit = rng.random() < DEFAULT_HIT_RATE if rule is None else rule(state)
        text = AGENT.format_observation(state)
        exchange = Exchange(text, REPLIES[hit], numbers_in(text))
        if made is not None and made.of:
            seen = named(state)
            exchange = exchange._replace(hints=made.hints(seen), marks=made.marks(text, seen))
        exchanges.append(exchange)
        if not hit:
            break
        card = rng.choices(list(CARDS), list(CARDS.values()))[0]
        total, ace = draw(total, ace, card)
    return exchanges


def instruction(rng: Chance) -> Instruction:
    """Draw what to do in which state, in no wording of `KEPT_BACK`."""
    while True:
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        made = kind(rng) if kind in BY_GRAMMAR else told(*kind(rng))
        if form(made.text) not in KEPT_BACK:
            return made


def form(text: str) -> str:
    """A sentence with n for its numbers."""
    return re.sub(r"\d+", "n", text).lower()


def below(limit: int) -> Rule:
    """Hit below a total."""
    return lambda state: state[0] < limit


def by_dealer(card: int, strong: int, weak: int) -> Rule:
    """Hit below one total if the dealer shows `card` or more (an ace is 11), else below another."""

    def hits(state: State) -> bool:
        dealer = state[1] if state[1] > 1 else 11
        return state[0] < (strong if dealer >= card else weak)

    return hits


def _below(rng: Chance) -> tuple[str, Rule]:
    limit = rng.randint(5, 21)
    forms = (
        "Hit below {}.",
        "Hit if your total is below {}.",
        "Stick at {} or more.",
        "Hit until you have {}.",
    )
    return rng.choice(forms).format(limit), below(limit)


def _facing(rng: Chance) -> tuple[str, Rule]:
    """Only the dealer's card matters: a step towards `_by_dealer`."""
    card, hits = rng.randint(3, 10), rng.random() < 0.5
    or_more = hits if rng.random() < USUAL_SHARE else not hits
    text = f"{'Hit' if hits else 'Stick'} if the dealer shows {f'{card} or more' if or_more else f'less than {card}'}."
    return text, by_dealer(card, 22, 0) if hits == or_more else by_dealer(card, 0, 22)


def _by_dealer(rng: Chance) -> tuple[str, Rule]:
    card, weak, strong = (rng.randint(3, 10), *sorted((rng.randint(5, 21), rng.randint(5, 21))))
    if rng.random() > USUAL_SHARE:
        weak, strong = strong, weak
    rule = by_dealer(card, strong, weak)
    if rng.random() < 0.7:
        return (
            f"If the dealer shows {card} or more hit below {strong}, else hit below {weak}.",
            rule,
        )
    return (
        f"If the dealer shows less than {card} hit below {weak}, else hit below {strong}.",
        rule,
    )


def _by_ace(rng: Chance) -> tuple[str, Rule]:
    soft, hard = rng.randint(12, 21), rng.randint(5, 21)
    return (
        f"With a usable ace hit below {soft}, else hit below {hard}.",
        lambda state: state[0] < (soft if state[2] else hard),
    )


def _exactly(rng: Chance) -> tuple[str, Rule]:
    total = rng.randint(4, 21)
    card = rng.randint(1, 10)
    shown = "an ace" if card == 1 else str(card)
    choices: list[tuple[str, Rule]] = [
        (f"Hit only on {total}.", lambda state: state[0] == total),
        (f"Stick only on {total}.", lambda state: state[0] != total),
        (f"Hit only if the dealer shows {shown}.", lambda state: state[1] == card),
        (f"Stick only if the dealer shows {shown}.", lambda state: state[1] != card),
        ("Hit only with a usable ace.", lambda state: bool(state[2])),
        ("Stick only with a usable ace.", lambda state: not state[2]),
    ]
    return rng.choice(choices)


def _manner(rng: Chance) -> tuple[str, Rule]:
    choices: list[tuple[str, Rule]] = [
        ("Be cautious.", below(12)),
        ("Play cautiously.", below(12)),
        ("Play it safe.", below(12)),
        ("Never risk a bust.", below(12)),
        ("Be bold.", below(19)),
        ("Play boldly.", below(19)),
        ("Take risks.", below(19)),
        ("Always hit.", lambda state: True),
        ("Always stick.", lambda state: False),
        ("Never hit.", lambda state: False),
        ("Never stick.", lambda state: True),
    ]
    return rng.choice(choices)


HITS = (
    "hit",
    "hit",
    "hit",
    "draw",
    "take a card",
    "take another card",
    "draw a card",
    "get another card",
    "ask for a card",
)
STICKS = ("stick", "stick", "stick", "stand", "stay", "stop", "take no card", "draw no card")
"""How people name the two actions."""
WORDS = {
    "TOTAL": (
        "your total",
        "the total",
        "your hand",
        "your sum",
        "the sum",
        "total",
        "your cards",
        "what you have",
    ),
    "DEALER": ("the dealer's card", "the dealer", "dealer", "the card of the dealer"),
    "HAVE": ("have", "have", "hold", "are at", "got"),
    "REACH": ("reach", "have", "get to", "are at", "hold", "get", "come to"),
    "SHOWS": ("shows", "has", "holds", "is showing"),
    "WITH": ("with", "on", "at", "when you have", "if you have", "when you hold", "holding"),
    "ONLY": ("", "", "only", "always", "please", "just", "you should"),
    "AGAIN": ("until", "till", "until the moment that", "up to when"),
    "ONCE": ("once", "when", "as soon as", "if", "after"),
}
BELOW = ("TOTAL IS LESS {n}", "TOTAL IS {n-1} DOWN", "TOTAL IS MOST {n-1}", "you HAVE LESS {n}", "you HAVE {n-1} DOWN",
    "you HAVE MOST {n-1}", "TOTAL < {n}", "TOTAL NOW SHORT {n}", "you have not reached {n}", "TOTAL <= {n-1}",
)  # fmt: skip
FROM = ("TOTAL IS {n} UP", "TOTAL IS MORE {n-1}", "TOTAL IS LEAST {n}", "you HAVE {n} UP", "you HAVE MORE {n-1}",
    "you HAVE LEAST {n}", "TOTAL >= {n}", "TOTAL > {n-1}", "TOTAL NOW REACHES {n}", "you REACH {n}",
)  # fmt: skip
DEALER_BELOW = ("DEALER SHOWS LESS {n}", "DEALER SHOWS {n-1} DOWN", "DEALER IS LESS {n}", "DEALER SHOWS MOST {n-1}",
    "DEALER IS {n-1} DOWN", "DEALER IS MOST {n-1}", "DEALER < {n}", "the dealer has a card LESS {n}",
)  # fmt: skip
DEALER_FROM = ("DEALER SHOWS {n} UP", "DEALER SHOWS MORE {n-1}", "DEALER IS {n} UP", "DEALER SHOWS LEAST {n}",
    "DEALER IS MORE {n-1}", "DEALER IS LEAST {n}", "DEALER > {n-1}", "the dealer has a card MORE {n-1}",
)  # fmt: skip
ACE = (
    "you have a usable ace",
    "there is a usable ace",
    "your ace is usable",
    "the ace is usable",
    "TOTAL has a usable ace",
)
NO_ACE = (
    "you have no usable ace",
    "there is no usable ace",
    "your ace is not usable",
    "TOTAL has no usable ace",
)
# Short ways to name a limit of the total: {a} to hit below {n}, {b} to stick from it on.
LIMITS = (
    "ONLY {a} LESS {n}.", "ONLY {b} WITH {n} UP.", "ONLY {a} WITH {n-1} DOWN.", "ONLY {a} AGAIN you REACH {n}.",
    "ONLY {b} MORE {n-1}.", "ONLY {b} at {n}.", "ONLY {b} ONCE you REACH {n}.", "ONLY {b} from {n} on.",
    "NEVER {b} LESS {n}.", "NEVER {a} MORE {n-1}.", "NEVER {a} WITH {n} UP.", "NEVER {b} WITH {n-1} DOWN.",
    "{a} LESS {n}, ELSE {b}.", "{a} LESS {n}, {b} from {n} on.", "{b} WITH {n} UP, ELSE {a}.", "{a} AGAIN {n}.",
    "WITH {n} UP {b}, WITH LESS {n} {a}.", "TOTAL LESS {n}: {a}. TOTAL {n} UP: {b}.", "WITH {n} UP {b}, with less {a}.",
    "WITH LESS {n} {a}, ELSE {b}.", "keep to this: {a} AGAIN you REACH {n}.", "ONLY {a} WITH LESS {n}.",
    "WITH {n-1} DOWN {a}, with more {b}.", "{a} AGAIN TOTAL REACHES {n}.", "TOTAL {n-1} DOWN: {a}, ELSE {b}.",
)  # fmt: skip


def _actions(rng: Chance) -> tuple[str, str]:
    return rng.choice(STICKS), rng.choice(HITS)


def _limit(rng: Chance) -> Instruction:
    n, (stick, hit) = rng.randint(5, 21), _actions(rng)
    text = filled(said(worded(rng, LIMITS, extra=WORDS), n=n, a=hit, b=stick))

    def holds(state: NamedState) -> bool:
        return int(state["total"]) < n

    return Instruction(
        text, lambda state: int(holds(state)), "below", holds, (1, 0), ("total", n), (hit, stick)
    )


def _condition(rng: Chance) -> Condition:
    """Of the total, of the dealer's card, or of the ace."""
    roll = rng.random()
    if roll < 0.1:
        forms, ace = (ACE, "yes") if rng.random() < 0.5 else (NO_ACE, "no")
        return Condition(worded(rng, forms, extra=WORDS), lambda state: state["ace"] == ace, "word")
    name, n = ("total", rng.randint(5, 21)) if roll < 0.6 else ("dealer", rng.randint(3, 11))
    less = rng.random() < 0.5
    forms = {"total": (FROM, BELOW), "dealer": (DEALER_FROM, DEALER_BELOW)}[name][less]
    text = said(worded(rng, forms, extra=WORDS), n=n)
    return Condition(
        text, lambda state: (int(state[name]) < n) == less, "below" if less else "from", (name, n)
    )


def _by_conditions(rng: Chance) -> Instruction:
    """One or two conditions, in any wording."""
    told, second, roll = _condition(rng), _condition(rng), rng.random()
    if roll < 0.12:
        told = joined("and", "{} and {}", told, second)
    elif roll < 0.24:
        told = joined("or", "{} or {}", told, second)
    return either(rng, FEATURES, _actions(rng), told=told)


def _by_numbers(rng: Chance) -> Instruction:
    """As in made-up worlds: sums, distances and comparisons of the two numbers."""
    return either(rng, FEATURES, _actions(rng))


def _always(rng: Chance) -> Instruction:
    return always(rng, _actions(rng))


FEATURES = Numbers({"total": (4, 21), "dealer": (2, 11)}, {})
KEPT_BACK = frozenset(
    form(text)
    for text in (
        "Hit while your total is less than 15.",
        "Stick if your total is above 13.",
        "If the total is 16 or lower, hit, else stick.",
        "Never hit when your total is over 11.",
        "Only hit below 14.",
        "Take a card if you have less than 18.",
        "Keep hitting until you reach 16.",
        "Stand on 15 and above.",
        "Draw as long as your hand is below 12.",
        "Hit on 13 or less.",
        "Do not hit at 18 or more.",
        "Please stick with 14 or more.",
        "Hit under 16, stick from 16 on.",
        "Stop at 19.",
        "You should hit when your total is at most 12.",
        "If you have 15 or more, stick.",
        "Stay when your total is 13 or higher, otherwise hit.",
        "Stick unless your total is below 12.",
        "Hit unless you have at least 17.",
        "Don't stick below 15.",
        "Never stick under 13.",
        "With 16 or more stick, with less hit.",
        "Total below 14: hit. Total 14 or more: stick.",
        "If total < 17, hit; else stick.",
        "If your sum is smaller than 15 take another card.",
        "Take cards until you have 17.",
        "Hit only when the total is lower than 11.",
        "Choose hit if your total is less than 16, choose stick otherwise.",
        "Stick when you hold 12 or more.",
        "Whenever your total is under 18, hit.",
        "Always hit, never stick.",
        "Just stick.",
        "Hit every single time.",
        "Do not take any card.",
        "Never ever stick.",
        "Hit if the dealer has 7 or more, else stick.",
        "Stick when the dealer's card is below 6, otherwise hit.",
        "If the dealer shows 9 or more, hit; if not, stick.",
        "Hit when the dealer's card is above 4.",
        "Hit if your total is below 15 or the dealer shows 10 or more.",
        "Hit if your total is below 16 and the dealer shows 7 or more, else stick.",
        "Hit only if you have a usable ace.",
    )
)
"""Sentences that are in no lesson, whatever their numbers."""
BY_GRAMMAR = {_by_conditions: 10, _limit: 6, _by_numbers: 2, _always: 2}
KINDS: Mapping[Callable, int] = {
    **BY_GRAMMAR,
    _below: 2, _facing: 5, _by_dealer: 6, _by_ace: 4, _exactly: 5, _manner: 2,
}  # fmt: skip
"""Kinds of instruction, and how often each is given."""
