"""Blackjack-v1: beat the dealer without going over 21."""

from collections.abc import Mapping, Sequence
from typing import Any

from llamagym_tui.agent import Agent, Drawing, Panel, Piece, PolicyMap
from llamagym_tui.agents._exact_blackjack import STATES, expected_return

SUITS = "♠♥♣♦"
BACK = Piece(" ░░ ", "back")
"""A card that lies face down."""
LABEL = 17
"""Columns for what a hand is."""
LONGEST = 20
"""Turns of a hand that nothing cuts off, at most: from 2 aces up to 21, an ace at a time."""


def _hand(observation: Any) -> tuple[int, str, bool]:
    """The player's total, the dealer's card in words, and whether an ace counts 11."""
    total, dealer, ace = [int(part) for part in observation]
    return total, "an ace" if dealer == 1 else str(dealer), bool(ace)


def _added_up(observation: Any) -> str:
    total, shown, is_soft = _hand(observation)
    ace = ", with a usable ace" if is_soft else ""
    return f"Your cards add up to {total}{ace}. The dealer shows {shown}."


def _turned_up(observation: Any) -> str:
    total, shown, is_soft = _hand(observation)
    ace = ", of which an ace makes 11" if is_soft else ""
    return f"The house turned up {shown}. Your cards make {total}{ace}."


def _terse(observation: Any) -> str:
    total, shown, is_soft = _hand(observation)
    return f"Dealer: {shown}. You: {total}{' (soft)' if is_soft else ''}."


def _faced(observation: Any) -> str:
    total, shown, is_soft = _hand(observation)
    ace = " counting an ace as eleven" if is_soft else ""
    return f"You hold {total}{ace} and face {shown} from the dealer."


def _on_the_table(observation: Any) -> str:
    total, shown, is_soft = _hand(observation)
    ace = ", soft" if is_soft else ""
    return f"With {shown} on the table for the bank, your hand is worth {total}{ace}."


class BlackjackAgent(Agent):
    """Plays ``Blackjack-v1``; observations are (player total, dealer card with ace as 1, usable ace)."""

    env_id = "Blackjack-v1"
    env_kwargs = {"natural": False, "sab": False}
    title = "Blackjack"
    description = "Get closer to 21 than the dealer without going over."
    action_names = ("stick", "hit")
    action_keys = {"s": 0, "h": 1}
    baselines = {"random": -0.396, "optimal": -0.0466}
    """Exact expected returns per hand, by dynamic programming (natural=False, sab=False)."""
    return_unit = "chips a hand"
    is_won_or_lost = True
    wordings = (_added_up, _turned_up, _terse, _faced, _on_the_table)
    history = 0
    """A hand's total says all that matters of the cards before, so equal situations are equal prompts."""

    def get_system_prompt(self) -> str:
        return (
            "You are playing Blackjack. Get closer to 21 than the dealer without going over. "
            'Reply with {"action": 0} to stick or {"action": 1} to hit.'
        )

    def format_observation(self, observation: Any) -> str:
        total, dealer, ace = [int(part) for part in observation]
        shown = "ace" if dealer == 1 else dealer
        return f"Your total: {total}. Usable ace: {'yes' if ace else 'no'}. Dealer shows: {shown}."

    def describe_turn(self, observation: Any, action: Any, reward: float) -> str:
        """The player's total and the dealer's card."""
        total, dealer, ace = [int(part) for part in observation]
        hand = f"{total} soft" if ace else str(total)
        return f"{hand} v {'A' if dealer == 1 else dealer}"

    def draw(
        self, observation: Any, info: Any = None, env: Any = None, player: str = "model"
    ) -> Drawing:
        """The dealer's card, another one face down, and the player's cards.

        Single cards of the player are not observed; where no environment knows them, the total is on one card.
        """
        total, dealer, ace = [int(part) for part in observation]
        first = _suit_of_first(env)
        cards = _cards(env, "player")
        hand = _hand_of(cards, first) if cards else [Piece(f" {total} ", "card")]
        words = f"{total} soft" if ace else str(total)
        shown = _card(dealer, first + 2)
        return [
            _line(f"dealer {_face(dealer)}", [shown, BACK]),
            _line(f"{player} {words}", hand),
        ]

    def reveal(self, observation: Any, info: Any, env: Any, player: str = "model") -> Drawing:
        """Both hands, as the dealer's cards are turned once the player sticks or is bust."""
        dealers = _cards(env, "dealer")
        players = _cards(env, "player")
        if not (dealers and players):
            return ""
        first = _suit_of_first(env)
        return [
            _line(f"dealer {_total(dealers)}", _hand_of(dealers, first + 2)),
            _line(f"{player} {_total(players)}", _hand_of(players, first)),
        ]

    def expert(self, observation: Any) -> int:
        """The optimal action if one can only hit (1) or stick (0).

        Cards are drawn with replacement and the dealer draws below 17, as in ``Blackjack-v1`` with
        ``natural=False, sab=False``; the tests compare it with dynamic programming, state by state.
        """
        total, dealer, ace = [int(part) for part in observation]
        if ace:
            hits = total < 18 or (total == 18 and dealer in (1, 9, 10))
        elif dealer == 1 or dealer >= 7:  # the dealer is strong
            hits = total < 17
        elif dealer in (2, 3):
            hits = total < 13
        else:
            hits = total < 12
        return int(hits)

    def policy_map(self) -> PolicyMap:
        """P(hit) on every hand that can occur, hard and soft; hard 21 takes three cards, so no episode begins there."""
        dealer = (*range(2, 11), 1)
        columns = [_face(card) for card in dealer]
        panels = []
        for title, lowest, ace in (("hard", 4, 0), ("soft", 12, 1)):
            totals = range(21, lowest - 1, -1)
            rows = [str(total) for total in totals]
            hands = [[(total, card, ace) for card in dealer] for total in totals]
            panels.append(Panel(title, rows, columns, hands, "your total", "dealer shows"))
        return PolicyMap(panels, action=1, like="basic strategy", noun="hands")

    def mean_return(self, shares: Mapping[Any, Sequence[float]], turns: int) -> float | None:
        """Exact, by dynamic programming; None under the rules ``natural`` and ``sab``, which pay otherwise."""
        has_other_rules = self.env_kwargs.get("natural") or self.env_kwargs.get("sab")
        if has_other_rules or turns < LONGEST or not shares.keys() >= set(STATES):
            return None
        return expected_return(lambda hand: shares[hand][1])


def _face(card: int) -> str:
    return "A" if card == 1 else str(card)


def _cards(env: Any, whose: str) -> list[int]:
    """The cards of a hand that an environment has dealt; none if it is of another kind."""
    table = getattr(env, "unwrapped", None)
    return list(getattr(table, whose, ()))


def _suit_of_first(env: Any) -> int:
    """The suit of the player's first card; the game has no suits, so the four cards that were dealt choose it."""
    return sum(_cards(env, "dealer")[:2]) + 3 * sum(_cards(env, "player")[:2])


def _hand_of(cards: list[int], first: int) -> list[Piece]:
    """The cards of a hand, in suits that follow each other from that of its first card."""
    return [_card(card, suit) for suit, card in enumerate(cards, start=first)]


def _card(card: int, suit: int) -> Piece:
    sign = SUITS[suit % len(SUITS)]
    return Piece(f" {_face(card)}{sign} ", "red card" if sign in "♥♦" else "card")


def _total(cards: list[int]) -> str:
    """The total of a hand; an ace counts 11 if that is not too much, else 1."""
    total = sum(cards)
    if 1 in cards and total <= 11:
        total += 10
    return f"{total}, bust" if total > 21 else str(total)


def _line(label: str, cards: list[Piece]) -> list[str | Piece]:
    """A hand behind what it is."""
    line: list[str | Piece] = [label.ljust(LABEL)]
    for card in cards:
        line += [card, " "]
    return line
