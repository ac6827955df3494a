"""Blackjack-v1: beat the dealer without going over 21."""

from collections.abc import Sequence
from typing import Any

from llamagym_tui.agent import Agent, Panel, PolicyMap


class BlackjackAgent(Agent):
    """Plays ``Blackjack-v1``; observations are (player total, dealer card with ace as 1, usable ace)."""

    env_id = "Blackjack-v1"
    env_kwargs = {"natural": False, "sab": False}
    title = "Blackjack"
    description = "Get closer to 21 than the dealer without going over."
    picture = "┌────┐┌────┐\n│ A  ││ 10 │\n│  ♠ ││  ♥ │\n└────┘└────┘"
    action_names = ("stick", "hit")
    action_keys = {"s": 0, "h": 1}
    baselines = {"random": -0.396, "optimal": -0.0466}
    """Exact expected returns per hand, by dynamic programming (natural=False, sab=False)."""
    return_unit = "chips a hand"

    def get_system_prompt(self) -> str:
        return (
            "You are playing Blackjack. Get closer to 21 than the dealer without going over. "
            'Reply with {"action": 0} to stick or {"action": 1} to hit.'
        )

    def format_observation(self, observation: Any) -> str:
        total, dealer, ace = (int(part) for part in observation)
        shown = "ace" if dealer == 1 else dealer
        return f"Your total: {total}. Usable ace: {'yes' if ace else 'no'}. Dealer shows: {shown}."

    def describe_return(self, mean: float) -> str:
        """Chips in 100 hands; the baselines are losses."""
        chips, known = round(100 * mean), self.baselines
        of = (
            f" (random {-100 * known['random']:.0f}, best {-100 * known['optimal']:.0f})"
            if known
            else ""
        )
        return f"{'wins' if chips > 0 else 'loses'} {abs(chips)} chip{'s' * (abs(chips) != 1)} in 100 hands{of}"

    def draw(self, observation: Any) -> str:
        """The dealer's two cards, one of them face down, and the player's total: single cards are not observed."""
        total, dealer, ace = (int(part) for part in observation)
        hand = f"{total} soft" if ace else str(total)
        card = f"{'A' if dealer == 1 else dealer:>2}"
        return "\n".join(
            [
                f"┌────┐ ┌────┐     ┌{'─' * (len(hand) + 2)}┐",
                f"│ {card} │ │ ░░ │     │ {hand} │",
                f"└────┘ └────┘     └{'─' * (len(hand) + 2)}┘",
                "dealer            you",
            ]
        )

    def reveal(self, observation: Any, info: Any, env: Any) -> str:
        """Both hands, card by card: the dealer's are turned once the player sticks or is bust."""
        hands = {"dealer": env.unwrapped.dealer, "you": env.unwrapped.player}
        return "\n".join(f"{name:<7}{_hand(cards)}" for name, cards in hands.items())

    def expert(self, observation: Any) -> int:
        """The optimal action where one can only hit or stick: 1 to hit.

        Cards are drawn with replacement and the dealer draws below 17, as ``Blackjack-v1`` has it with
        ``natural=False, sab=False``; the tests compare it with dynamic programming, state by state.
        """
        total, dealer, ace = (int(part) for part in observation)
        strong = dealer == 1 or dealer >= 7
        if ace:
            return int(total < 18 or (total == 18 and dealer in (1, 9, 10)))
        return int(total < (17 if strong else 13 if dealer in (2, 3) else 12))

    def policy_map(self) -> PolicyMap:
        """P(hit) on every hand that can be met, hard and soft; hard 21 takes three cards, so it is no first hand."""
        dealer = (*range(2, 11), 1)
        cards = ["A" if card == 1 else str(card) for card in dealer]
        panels = []
        for title, lowest, ace in (("hard", 4, 0), ("soft", 12, 1)):
            totals = range(21, lowest - 1, -1)
            hands = [[(total, card, ace) for card in dealer] for total in totals]
            panels.append(
                Panel(
                    title,
                    [str(total) for total in totals],
                    cards,
                    hands,
                    "your total",
                    "dealer shows",
                )
            )
        return PolicyMap(panels, action=1, like="the book", noun="hands")


def _hand(cards: Sequence[int]) -> str:
    """Cards and their total, of which an ace counts 11 where that is not too much."""
    total = sum(cards) + 10 * (1 in cards and sum(cards) <= 11)
    return f"{' '.join('A' if card == 1 else str(card) for card in cards)} = {total}{', bust' * (total > 21)}"
