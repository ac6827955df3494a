"""What a person sees of the state: cards on a table, a walker on the lake."""

from __future__ import annotations

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent


def test_cards_lie_on_the_table() -> None:
    assert BlackjackAgent().draw((14, 1, 1)).split("\n") == [
        "┌────┐ ┌────┐     ┌─────────┐",
        "│  A │ │ ░░ │     │ 14 soft │",
        "└────┘ └────┘     └─────────┘",
        "dealer            you",
    ]


def test_the_walker_stands_on_the_lake() -> None:
    assert FrozenLakeAgent().draw(6).split("\n") == [
        " S  ·  ·  · ",
        " ·  O [·] O ",
        " ·  ·  ·  O ",
        " O  ·  ·  G ",
    ]
