"""An agent that reads replies as LlamaGym's Blackjack example does (KhoomeiK/LlamaGym, examples/blackjack.py)."""

from __future__ import annotations

import re
from typing import Any

from llamagym_tui import Agent


class SeedAgent(Agent):
    """Asks for ``Action: n``; knows no JSON: the digit in ``{"action": 1}`` sends it past its words to 0."""

    def get_system_prompt(self) -> str:
        return (
            "You are an expert blackjack player. Every turn you see your sum, the dealer's card and whether you have "
            'an ace. Write "Action: 0" to stay or "Action: 1" to take a card.'
        )

    def format_observation(self, observation: Any) -> str:
        return f"You: {observation[0]}. Dealer: {observation[1]}. You have {'an' if observation[2] else 'no'} ace."

    def extract_action(self, response: str) -> int:
        match = re.compile(r"Action: (\d)").search(response)
        if match:
            return int(match.group(1))
        digits = [letter for letter in response if letter.isdigit()]
        if not digits or digits[-1] not in ("0", "1"):
            if "stick" in response.lower():
                return 0
            if "hit" in response.lower():
                return 1
        return 0
