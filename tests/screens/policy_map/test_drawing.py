"""The drawing of a policy map, line by line: shades without colours, halves of lines, boards."""

from __future__ import annotations

from textual.color import Color
from textual.style import Style

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.cart_pole import CartPoleAgent
from llamagym_tui.agents.tic_tac_toe import BOARDS, TicTacToeAgent
from llamagym_tui.protocol.events import PolicyMapped
from llamagym_tui.screens.policy_map.drawing import (
    COLD,
    WARM,
    legend,
    map_line,
    places_for,
    shaded,
)
from llamagym_tui.screens.policy_map.mapped_policy import (
    Count,
    MappedCell,
    MappedPolicy,
    Spot,
    changed_choices,
)
from tests.screens.map_events import hitting, layout_of

BLACKJACK = layout_of(BlackjackAgent())
BOARD = layout_of(TicTacToeAgent())
DARK = Color.parse("#1d242f")


def colourless(spot: Spot, cell: MappedCell, warmth: float | None) -> Style:
    return Style()


def coloured(spot: Spot, cell: MappedCell, warmth: float | None) -> Style:
    return Style() if warmth is None else shaded(DARK, warmth)


def drawn(policy: MappedPolicy, width: int, height: int) -> list[str]:
    """The lines without colours."""
    places = places_for(policy.layout, width, height)
    lines = []
    for y in range(places.height):
        pieces = map_line(policy, places, y, colourless)
        lines.append("".join(piece.text for piece in pieces).rstrip())
    return lines


def playing(*fields: int) -> MappedPolicy:
    """A player of tic-tac-toe who puts nine tenths on one field of each board."""
    shares = []
    for field in fields:
        shares.append([0.9 if each == field else 0.0125 for each in range(9)])
    return MappedPolicy(BOARD, PolicyMapped(update=1, prompt_version=0, shares=shares))


def test_shades_stand_for_probabilities_where_there_are_no_colours() -> None:
    # P(hit) is 0.5 + 0.11 (14.5 - total): 0.01 at 21, 0.335 at 16, 0.555 at 14, 0.775 at 12 and 0.99 at 10.
    lines = drawn(MappedPolicy(BLACKJACK, hitting(14.5, update=1)), 53, 19)
    assert lines[0].split()[:3] == ["hard", "2", "3"]
    assert lines[1] == "21" + " " * 26 + "21"
    assert lines[6][:25] == "16   " + 5 * "░░" + 5 * "░◦"
    assert lines[8][:25] == "14   " + 5 * "▒◦" + 5 * "▒▒"
    assert lines[10][:25] == "12   " + 2 * "▓▓" + 3 * "▓◦" + 5 * "▓▓"
    assert lines[12] == "10   " + 10 * "██"


def test_two_rows_of_states_are_one_line_where_rows_are_short() -> None:
    policy = MappedPolicy(BLACKJACK, hitting(13.5, update=1))
    lines = drawn(policy, 38, 11)
    assert len(lines) == 10
    assert lines[0] == "hard 234567890A   soft 234567890A"
    # Hits 13 and below it: in the line of 15 and 14 neither, in that of 13 and 12 both.
    assert lines[4].split() == ["15", "15"]
    assert lines[5].split() == ["13", "█" * 10, "13", "█" * 10]
    places = places_for(BLACKJACK, 38, 11)
    odd = MappedPolicy(BLACKJACK, hitting(14.5, update=1))
    pieces = [*map_line(odd, places, 4, coloured)]
    cell = next(piece for piece in pieces if piece.spot == Spot(0, 6, 0))
    assert cell.text == "▀"
    assert cell.style.foreground == shaded(DARK, 0.4).background, "15: P(hit) is 0.445"
    assert cell.style.background == shaded(DARK, 0.6).background, "14: P(hit) is 0.555"


def test_a_label_of_a_column_is_never_cut_to_that_of_another() -> None:
    layout = layout_of(CartPoleAgent())
    top = drawn(MappedPolicy(layout, None), 36, 11)[0]
    assert top.split() == ["cart", "at", "rest", *layout.panels[0].columns[:10:2]]


def test_a_board_has_its_marks_and_the_move_that_is_likeliest() -> None:
    policy = playing(4, 8, 0, 4, 1, 3, 2, 5)
    lines = drawn(policy, 38, 11)
    assert lines[0].split() == ["begin", "reply", "reply", "reply"]
    assert lines[1] == "· · ·    O · ·    x · ·    · O ·"
    assert lines[2] == "· x ·    · · ·    · O ·    · x ·"
    # The answer to a corner is the center; 2 wins on the first of the last two boards, and saves the last one.
    assert lines[3] == "· · ·    · · x◦   · · ·    · · ·"
    assert lines[5].endswith("X X x    O O ·")
    assert lines[6].endswith("O O ·    · X x◦")
    assert policy.count.states == len(BOARDS) == 8
    takes_a_taken_field = playing(4, 0, 0, 4, 1, 3, 2, 5)
    assert takes_a_taken_field.count.states == 8


def test_a_board_that_is_played_otherwise_has_changed_in_one_field() -> None:
    before = playing(4, 8, 0, 4, 1, 3, 2, 5)
    after = playing(4, 4, 0, 4, 1, 3, 2, 2)
    assert changed_choices(before, after) == {Spot(1, 1, 1), Spot(7, 0, 2)}
    assert after.count == Count(before.count.agreeing + 2, 8)


def test_the_scale_goes_from_blue_over_the_ground_to_amber() -> None:
    assert shaded(DARK, 0.0).background == COLD
    assert shaded(DARK, 0.5).background == DARK
    assert shaded(DARK, 1.0).background == WARM


def test_the_legend_has_the_colours_of_two_actions_or_their_shades() -> None:
    assert legend(BLACKJACK) == [
        *(("█", WARM.hex), (" hit  ", "")),
        *(("█", COLD.hex), (" stick  ◦ not the best", "")),
    ]
    assert legend(BLACKJACK, has_colours=False) == [("█ hit  (blank) stick  ◦ not the best", "")]
