"""What a person sees of the state: cards on a table, a walker on the lake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.game.drawing import MAX_COLUMNS, MAX_LINES, StateDrawing, drawn
from llamagym_tui.game.pictures import Piece
from tests.toy_env import CountAgent

LAKE = [" S  ·  ·  · ", " ·  O [·] O ", " ·  ·  ·  O ", " O  ·  ·  G "]
TABLE = SimpleNamespace(unwrapped=SimpleNamespace(dealer=[1, 10], player=[10, 6, 9]))
"""An environment of Blackjack in which the player has drawn a card."""


def lines(found: StateDrawing) -> list[str]:
    return found.text.split("\n")


def grounds(found: StateDrawing) -> list[tuple[str, str]]:
    """What stands on each ground, in order."""
    return [(found.text[start:stop], ground) for start, stop, ground in found.grounds]


def test_cards_lie_on_the_table_as_far_as_they_are_known() -> None:
    agent = BlackjackAgent()
    assert lines(drawn(agent, None, (14, 1, 1))) == [
        "┌──┌────┐     ┌─────────┐",
        "│ A│░░░░│     │14 soft  │",
        "└──└────┘     └─────────┘",
        "dealer        you 14 soft",
    ]
    table = drawn(agent, TABLE, (25, 1, 0))
    assert lines(table) == [
        "┌──┌────┐     ┌──┌──┌────┐",
        "│ A│░░░░│     │10│ 6│ 9  │",
        "└──└────┘     └──└──└────┘",
        "dealer        you 25",
    ]
    assert grounds(table)[5:8] == [("│ A", "card"), ("│░░░░│", "back"), ("│10", "card")]


def test_the_dealers_card_is_turned_when_the_hand_is_over() -> None:
    agent = BlackjackAgent()
    assert lines(drawn(agent, TABLE, (25, 1, 0), is_over=True)) == [
        "┌──┌────┐     ┌──┌──┌────┐",
        "│ A│10  │     │10│ 6│ 9  │",
        "└──└────┘     └──└──└────┘",
        "dealer 21     you 25, bust",
    ]
    drew = SimpleNamespace(unwrapped=SimpleNamespace(dealer=[10, 6, 10], player=[1, 1]))
    assert lines(drawn(agent, drew, (12, 10, 1), is_over=True)) == [
        "┌──┌──┌────┐        ┌──┌────┐",
        "│10│ 6│10  │        │ A│ A  │",
        "└──└──└────┘        └──└────┘",
        "dealer 26, bust     you 12",
    ]


def test_a_lake_is_ice_with_holes_and_the_walkers_field_is_another() -> None:
    found = drawn(FrozenLakeAgent(), None, 6)
    assert lines(found) == LAKE
    assert grounds(found)[:8] == [
        *((" S ", "ice"), (" · ", "ice"), (" · ", "ice"), (" · ", "ice")),
        *((" · ", "ice"), (" O ", "danger"), ("[·]", "player"), (" O ", "danger")),
    ]
    assert grounds(found)[-1] == (" G ", "goal")


def test_pieces_are_read_as_lines_and_bounded() -> None:
    line = [Piece("ab", "ice"), Piece("c\nd", "ice"), "e", Piece("f", "goal")]
    found = drawn(Draws(), None, [line, "text", Piece("g", "goal")])
    assert found.text == "abc def\ntext\ng"
    assert grounds(found) == [
        *(("ab", "ice"), ("c d", "ice"), ("f", "goal"), ("g", "goal")),
    ]
    wide = [[Piece("x" * 1_000, "ice"), Piece("y", "goal")]] * 1_000
    found = drawn(Draws(), None, wide)
    assert lines(found) == ["x" * MAX_COLUMNS] * MAX_LINES
    assert grounds(found) == [("x" * MAX_COLUMNS, "ice")] * MAX_LINES
    assert drawn(Draws(), None, [[Piece(None, "ice")]]) == ("", ())  # type: ignore[arg-type]


class Draws(CountAgent):
    """Draws what it observes."""

    def draw(self, observation: Any) -> Any:
        return observation


def test_what_raises_or_is_no_text_draws_nothing() -> None:
    class Unsayable:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert drawn(Draws(), None, Unsayable()) == ("", ())
