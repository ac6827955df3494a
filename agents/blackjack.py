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
    history = 0
    """A hand's total says all that matters of the cards before, so equal situations are equal prompts."""

    reasons = {
        "stick": ("Close to 21.", "My total is enough."),
        "hit": ("Too low.", "It is safe to draw."),
    }

    def get_system_prompt(self) -> str:
        how = "Give a short reason, then reply with" if self.asks_reason else "Reply with"
        return (
            "You are playing Blackjack. Get closer to 21 than the dealer without going over. "
            f'{how} {{"action": 0}} to stick or {{"action": 1}} to hit.'
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
        words = f"{outcome} {abs(chips)} {unit} in 100 hands"
        if not self.baselines:
            return words
        random_loss = -100 * self.baselines["random"]
        best_loss = -100 * self.baselines["optimal"]
        return f"{words} (random {random_loss:.0f}, best {best_loss:.0f})"

    def describe_turn(self, observation: Any, action: Any, reward: float) -> str:
        """The player's total and the dealer's card."""
        total, dealer, ace = [int(part) for part in observation]
        hand = f"{total} soft" if ace else str(total)
        return f"{hand} against {'ace' if dealer == 1 else dealer}"

    def draw(self, observation: Any) -> str:
        """The dealer's two cards, one of them face down, and the player's total, as single cards are not observed."""
        total, dealer, ace = [int(part) for part in observation]
        hand = f"{total} soft" if ace else str(total)
        edge = "─" * (len(hand) + 2)
        card = f"{'A' if dealer == 1 else dealer:>2}"
        return "\n".join(
            [
                f"┌────┐ ┌────┐     ┌{edge}┐",
                f"│ {card} │ │ ░░ │     │ {hand} │",
                f"└────┘ └────┘     └{edge}┘",
                "dealer            you",
            ]
        )

    def reveal(self, observation: Any, info: Any, env: Any) -> str:
        """Both hands, card by card, as the dealer's cards are turned once the player sticks or is bust."""
        hands = {"dealer": env.unwrapped.dealer, "you": env.unwrapped.player}
        return "\n".join(f"{name:<7}{_hand(cards)}" for name, cards in hands.items())

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
        columns = ["A" if card == 1 else str(card) for card in dealer]
        panels = []
        for title, lowest, ace in (("hard", 4, 0), ("soft", 12, 1)):
            totals = range(21, lowest - 1, -1)
            rows = [str(total) for total in totals]
            hands = [[(total, card, ace) for card in dealer] for total in totals]
            panels.append(Panel(title, rows, columns, hands, "your total", "dealer shows"))
        return PolicyMap(panels, action=1, like="the book", noun="hands")


def _hand(cards: Sequence[int]) -> str:
    """Cards and their total; an ace counts 11 if that is not too much, else 1."""
    total = sum(cards)
    if 1 in cards and total <= 11:
        total += 10
    names = " ".join("A" if card == 1 else str(card) for card in cards)
    return f"{names} = {total}, bust" if total > 21 else f"{names} = {total}"
