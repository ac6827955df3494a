"""Blackjack-v1: beat the dealer without going over 21."""

from collections.abc import Mapping, Sequence
from typing import Any

from llamagym_tui.agent import Agent, Drawing, Panel, Piece, PolicyMap
from llamagym_tui.agents._exact_blackjack import STATES, expected_return

BACK = "░░"
"""A card that lies face down."""
APART = 5
"""Cells between the two hands, at least."""
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

    def describe_return(self, mean: float) -> str:
        """Chips that are won or lost in 100 hands; the baselines are both losses."""
        chips = round(100 * mean)
        outcome = "wins" if chips > 0 else "loses"
        unit = "chip" if abs(chips) == 1 else "chips"
        return f"{outcome} {abs(chips)} {unit} in 100 hands (random 40, best 5)"

    def describe_turn(self, observation: Any, action: Any, reward: float) -> str:
        """The player's total and the dealer's card."""
        total, dealer, ace = [int(part) for part in observation]
        hand = f"{total} soft" if ace else str(total)
        return f"{hand} against {'ace' if dealer == 1 else dealer}"

    def draw(self, observation: Any, info: Any = None, env: Any = None) -> Drawing:
        """The dealer's card, another one face down, and the player's cards.

        Single cards of the player are not observed; where no environment knows them, the total is on one card.
        """
        total, dealer, ace = [int(part) for part in observation]
        words = f"{total} soft" if ace else str(total)
        player = _cards(env, "player") or [words]
        return _table([_face(dealer), BACK], "dealer", player, f"you {words}")

    def reveal(self, observation: Any, info: Any, env: Any) -> Drawing:
        """Both hands, as the dealer's cards are turned once the player sticks or is bust."""
        dealer = _cards(env, "dealer")
        player = _cards(env, "player")
        if not (dealer and player):
            return ""
        return _table(dealer, f"dealer {_total(dealer)}", player, f"you {_total(player)}")

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


def _cards(env: Any, whose: str) -> list[str]:
    """The faces of a hand that an environment has dealt; none if it is of another kind."""
    table = getattr(env, "unwrapped", None)
    return [_face(card) for card in getattr(table, whose, ())]


def _total(faces: list[str]) -> str:
    """The total of a hand; an ace counts 11 if that is not too much, else 1."""
    total = sum(1 if face == "A" else int(face) for face in faces)
    if "A" in faces and total <= 11:
        total += 10
    return f"{total}, bust" if total > 21 else str(total)


def _table(dealer: list[str], dealers: str, player: list[str], players: str) -> Drawing:
    """Two hands next to each other, and under each what it is."""
    left = _fan(dealer)
    right = _fan(player)
    width = sum(len(piece.text) for piece in left[0])
    gap = " " * (APART + max(0, len(dealers) - width))
    lines: list[list[str | Piece]] = []
    for one, other in zip(left, right, strict=True):
        lines.append([*one, gap, *other])
    return [*lines, dealers.ljust(width + len(gap)) + players]


def _fan(faces: list[str]) -> list[list[Piece]]:
    """Cards on three lines, of which each lies on the one before and shows all but its right side."""
    lines: list[list[Piece]] = [[], [], []]
    for number, face in enumerate(faces, start=1):
        edge = "─" * max(2, len(face))
        sides = [f"┌{edge}", f"│{face:>2}", f"└{edge}"]
        if number == len(faces):  # no other card lies on it
            ends = ("──┐", "░░│" if face == BACK else "  │", "──┘")
            sides = [side + end for side, end in zip(sides, ends, strict=True)]
        for line, side in zip(lines, sides, strict=True):
            line.append(Piece(side, "back" if face == BACK else "card"))
    return lines
