"""What a person sees of the state: cards on a table, a walker on the lake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.agents.kitchen import KitchenAgent
from llamagym_tui.agents.taxi import TaxiAgent
from llamagym_tui.game.drawing import MAX_COLUMNS, MAX_LINES, StateDrawing, drawn
from llamagym_tui.game.large_drawing import large_drawing
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


def test_a_hand_is_a_line_of_cards_as_far_as_they_are_known() -> None:
    agent = BlackjackAgent()
    assert lines(drawn(agent, None, (14, 1, 1), player="you")) == [
        "dealer A          A♣   ░░  ",
        "you 14 soft       14  ",
    ]
    table = drawn(agent, TABLE, (25, 1, 0))
    assert lines(table) == ["dealer A          A♥   ░░  ", "model 25          10♦   6♠   9♥  "]
    assert grounds(table)[:3] == [(" A♥ ", "red card"), (" ░░ ", "back"), (" 10♦ ", "red card")]


def test_the_dealers_card_is_turned_when_the_hand_is_over() -> None:
    agent = BlackjackAgent()
    assert lines(drawn(agent, TABLE, (25, 1, 0), is_over=True)) == [
        "dealer 21         A♥   10♣  ",
        "model 25, bust    10♦   6♠   9♥  ",
    ]
    drew = SimpleNamespace(unwrapped=SimpleNamespace(dealer=[10, 6, 10], player=[1, 1]))
    revealed = drawn(agent, drew, (12, 10, 1), is_over=True)
    assert [line[:15] for line in lines(revealed)] == ["dealer 26, bust", "model 12       "]


def test_a_card_keeps_its_suit_while_the_hand_goes_on() -> None:
    agent = BlackjackAgent()

    def cards(dealer: list[int], player: list[int], *, is_over: bool) -> list[str]:
        table = SimpleNamespace(unwrapped=SimpleNamespace(dealer=dealer, player=player))
        found = drawn(agent, table, (12, 7, 0), is_over=is_over)
        return [text.strip() for text, _ in grounds(found)]

    dealt = cards([7, 10], [10, 2], is_over=False)
    drew = cards([7, 10], [10, 2, 3], is_over=False)
    shown = cards([7, 10, 2], [10, 2, 3], is_over=True)
    assert dealt[2:] == drew[2:4] == shown[3:5]
    assert dealt[0] == drew[0] == shown[0]
    suits = {card[-1] for card in (*shown[:2], *shown[3:5])}
    assert suits == set("♠♥♣♦")


def test_cards_are_as_large_as_they_fit() -> None:
    table = drawn(BlackjackAgent(), TABLE, (25, 1, 0))
    assert lines(large_drawing(*table, 43, 8)) == [
        "dealer A         model 25             ",
        "╭─────╮╭─────╮   ╭─────╮╭─────╮╭─────╮",
        "│A   ♥││░░░░░│   │10  ♦││6   ♠││9   ♥│",
        "│     ││░░░░░│   │     ││     ││     │",
        "│♥   A││░░░░░│   │♦  10││♠   6││♥   9│",
        "╰─────╯╰─────╯   ╰─────╯╰─────╯╰─────╯",
    ]
    small = large_drawing(*table, 37, 7)
    assert lines(small) == [
        "dealer A     model 25       ",
        "╭───╮╭───╮   ╭───╮╭───╮╭───╮",
        "│A ♥││░░░│   │10♦││6 ♠││9 ♥│",
        "╰───╯╰───╯   ╰───╯╰───╯╰───╯",
    ]
    assert small == large_drawing(*table, 28, 4)
    assert grounds(small)[2:7] == [
        *(("╭───╮", "red card"), ("╭───╮", "card"), ("╭───╮", "red card")),
        *(("│A ♥│", "red card"), ("│░░░│", "back")),
    ]
    assert len(lines(large_drawing(*table, 27, 8))) == 8
    assert len(lines(large_drawing(*table, 21, 12))) == 12
    assert large_drawing(*table, 43, 3) == table


def test_fields_of_a_board_are_larger_where_there_is_room_and_walls_as_high() -> None:
    lake = drawn(FrozenLakeAgent(), None, 6)
    assert large_drawing(*lake, 43, 8) == lake
    large = large_drawing(*lake, 28, 12)
    assert len(lines(large)) == 12
    assert lines(large)[3:6] == [" " * 28, "   ·      O     [·]     O   ", " " * 28]
    assert grounds(large)[:2] == [(" " * 7, "ice")] * 2
    taxi = lines(large_drawing(*drawn(TaxiAgent(), None, 0), 43, 17))
    assert taxi[0] == "│               │                       │"
    assert taxi[1].startswith("│  [T]      ·   │   · ")
    assert taxi[15] == "( ) passenger at red"
    kitchen = drawn(KitchenAgent(), None, 0)
    assert large_drawing(*kitchen, 100, 40) == kitchen, "its walls are drawn of characters"


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
