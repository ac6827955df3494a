"""Sentences that the bundled model follows in 9 of 10 states or more, as the card that comes with it has measured."""

import re
from importlib.resources import files

ROWS = {
    "blackjack": r"^\| (.+) P\(hit\) in hit \| (?:0\.9|1\.0)\d\d \|\n\| \1 P\(hit\) in stick \| 0\.0\d\d \|$",
    "cart_pole": r"^\| follows in cart_pole, (.+) \| (?:0\.9|1\.0)\d\d \|$",
}
"""Patterns of the rows of the model's card that name what it follows, by agent."""
KINDS = {r"dealer": "by the dealer's card", r"\d": "by a number", r"": "always the same"}


def followed(agent: str) -> list[tuple[str, str]]:
    """Kinds and sentences, in the order of the kinds; empty: none are measured for this agent."""
    card = files("llamagym_tui.bundled_model").joinpath("README.md").read_text("utf-8")
    texts = re.findall(ROWS[agent], card, re.MULTILINE) if agent in ROWS else []
    return sorted(
        (next(kind for word, kind in KINDS.items() if re.search(word, text)), text)
        for text in texts
    )
