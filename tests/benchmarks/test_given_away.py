"""Which boards are given away, by players whose faults are known."""

from __future__ import annotations

from benchmarks.given_away import given_away
from llamagym_tui.agents.tic_tac_toe import MINE, START, best, free


def test_who_plays_without_a_fault_gives_nothing_away_and_who_takes_the_first_field_does() -> None:
    boards, found = given_away(lambda boards: [best(board, MINE)[0] for board in boards], [START])
    assert found == []
    assert boards > 50
    _, found = given_away(lambda boards: [free(board)[0] for board in boards], [START])
    # After 1 the other one takes 8, which 5 has to answer, and then 6, from where it wins by 4 or 7.
    assert ("X.O......", 1) in found
    assert START not in [board for board, _ in found], "to begin in a corner loses nothing"
