"""Lessons in Blackjack: prompts that can only be followed by reading the state, and the noisy default prompt.

Observations and replies are the built-in agent's own. An ace of the dealer counts as 11 in "7 or more".
"""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.exact_blackjack import CARDS, STATES, State, draw
from llamagym_tui.agents.blackjack import BlackjackAgent
from scripts.bundled_model.lessons import Exchange, Lesson

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

Rule = Callable[[State], bool]
OPENINGS = (
    AGENT.get_system_prompt(),
    "You are playing Blackjack.",
    'You play Blackjack. Reply with {"action": 0} to stick or {"action": 1} to hit.',
    "",
)


def lesson(rng: random.Random, hands: int, dealer_weight: int = 1) -> Lesson:
    """A prompt, and hands that are played as it says; prompts about the dealer's card are so many times as common."""
    if rng.random() < DEFAULT_SHARE:
        return Lesson(AGENT.get_system_prompt(), [hand(rng, None) for _ in range(hands)])
    if rng.random() < REPORT_SHARE:
        return report(rng, hands)
    text, rule = instruction(rng, dealer_weight)
    opening = rng.choice(OPENINGS[:1] * 3 + OPENINGS[1:])
    return Lesson(f"{opening} {text}".strip(), [hand(rng, rule) for _ in range(hands)])


def report(rng: random.Random, hands: int) -> Lesson:
    """The reply names the total or the dealer's card, so that these reach the token that decides."""
    part, name = rng.choice([(0, "your total"), (1, "the dealer's card")])

    def exchange(state: State) -> Exchange:
        number = 11 if part == 1 and state[1] == 1 else state[part]
        return Exchange(AGENT.format_observation(state), AGENT.format_action(number), state)

    prompt = f'{rng.choice(OPENINGS[1:])} Reply with {{"action": n}}, where n is {name}.'.strip()
    return Lesson(prompt, [[exchange(rng.choice(STATES))] for _ in range(hands)])


def hand(rng: random.Random, rule: Rule | None) -> list[Exchange]:
    """One hand from a random state on; without a rule, actions are drawn by `DEFAULT_HIT_RATE`."""
    total, dealer, ace = rng.choice(STATES)
    exchanges = []
    while total <= 21 and len(exchanges) < 4:
        state = (total, dealer, ace)
        hit = rng.random() < DEFAULT_HIT_RATE if rule is None else rule(state)
        exchanges.append(Exchange(AGENT.format_observation(state), REPLIES[hit], state))
        if not hit:
            break
        card = rng.choices(list(CARDS), list(CARDS.values()))[0]
        total, ace = draw(total, ace, card)
    return exchanges


def instruction(rng: random.Random, dealer_weight: int = 1) -> tuple[str, Rule]:
    """A sentence, and the rule that it states."""
    weights = [weight * (dealer_weight if kind is _by_dealer else 1) for kind, weight in KINDS.items()]
    return rng.choices(list(KINDS), weights)[0](rng)


def below(limit: int) -> Rule:
    """Hit below a total."""
    return lambda state: state[0] < limit


def by_dealer(card: int, strong: int, weak: int) -> Rule:
    """Hit below one total if the dealer shows `card` or more (an ace is 11), else below another."""
    return lambda state: state[0] < (strong if (state[1] if state[1] > 1 else 11) >= card else weak)


def _below(rng: random.Random) -> tuple[str, Rule]:
    limit = rng.randint(5, 21)
    forms = ("Hit below {}.", "Hit if your total is below {}.", "Stick at {} or more.", "Hit until you have {}.")
    return rng.choice(forms).format(limit), below(limit)


def _facing(rng: random.Random) -> tuple[str, Rule]:
    """Only the dealer's card matters: a step towards `_by_dealer`."""
    card, hits = rng.randint(3, 10), rng.random() < 0.5
    or_more = hits if rng.random() < USUAL_SHARE else not hits
    text = f"{'Hit' if hits else 'Stick'} if the dealer shows {f'{card} or more' if or_more else f'less than {card}'}."
    return text, by_dealer(card, 22, 0) if hits == or_more else by_dealer(card, 0, 22)


def _by_dealer(rng: random.Random) -> tuple[str, Rule]:
    card, weak, strong = rng.randint(3, 10), *sorted((rng.randint(5, 21), rng.randint(5, 21)))
    if rng.random() > USUAL_SHARE:
        weak, strong = strong, weak
    rule = by_dealer(card, strong, weak)
    if rng.random() < 0.7:
        return f"If the dealer shows {card} or more hit below {strong}, else hit below {weak}.", rule
    return f"If the dealer shows less than {card} hit below {weak}, else hit below {strong}.", rule


def _by_ace(rng: random.Random) -> tuple[str, Rule]:
    soft, hard = rng.randint(12, 21), rng.randint(5, 21)
    return (
        f"With a usable ace hit below {soft}, else hit below {hard}.",
        lambda state: state[0] < (soft if state[2] else hard),
    )


def _exactly(rng: random.Random) -> tuple[str, Rule]:
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


def _manner(rng: random.Random) -> tuple[str, Rule]:
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


KINDS = {_below: 3, _facing: 5, _by_dealer: 6, _by_ace: 2, _exactly: 3, _manner: 2}
"""Kinds of instruction, and how often each is given."""
