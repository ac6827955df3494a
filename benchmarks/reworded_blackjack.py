"""Blackjack in other words than those of the agent that ships, and with other names of its actions."""

from __future__ import annotations

from typing import Any

from llamagym_tui.agents.blackjack import BlackjackAgent


class RewordedBlackjackAgent(BlackjackAgent):
    title = "Blackjack, reworded"
    action_names = ("enough", "another")

    def get_system_prompt(self) -> str:
        return (
            "You play cards against the house: nearest to 21 wins, and beyond it you lose at once. "
            'Answer {"action": 0} for enough or {"action": 1} for another.'
        )

    def format_observation(self, observation: Any) -> str:
        total, dealer, ace = (int(part) for part in observation)
        worth = ", of which an ace makes 11" if ace else ""
        return f"The house turned up {'an ace' if dealer == 1 else dealer}. Your cards make {total}{worth}."
