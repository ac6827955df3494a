"""Tic-tac-toe: exact play, four opponents, who begins, what ends a game, and what is told of a board."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from llamagym_tui.agent import Move
from llamagym_tui.agents._tic_tac_toe_env import TicTacToe
from llamagym_tui.agents.tic_tac_toe import (
    BOARDS,
    MINE,
    OPPONENTS,
    START,
    THEIRS,
    TicTacToeAgent,
    best,
    free,
    value,
    winner,
)

AGENT = TicTacToeAgent()
GAMES = 200


def returns(opponent: str, act: Any) -> list[float]:
    """What each game earns."""
    env = TicTacToe(opponent)  # type: ignore[arg-type]
    found = []
    for seed in range(GAMES):
        board, _ = env.reset(seed=seed)
        is_over = False
        while not is_over:
            board, reward, is_over, _, _ = env.step(act(board))
        found.append(reward)
    return found


def test_values_are_those_of_the_rules_worked_by_hand() -> None:
    assert value(START, MINE) == 0
    assert set(best(START, MINE)) == set(range(9)), "the empty board is drawn from every field"
    assert best("X...O....", THEIRS) == (1, 2, 3, 5, 6, 7, 8)
    assert best("X........", THEIRS) == (4,), "only the center draws against a corner"
    assert best("XX.OO....", MINE) == (2,)
    assert value("X.X.O.X.O", THEIRS) == -3, "a fork, which wins with two fields empty"
    assert best("X.XO.OX.O", THEIRS) == (4,), "it wins now, and not later"


@pytest.mark.parametrize("opponent", sorted(OPPONENTS))
def test_the_expert_loses_to_no_opponent_and_beats_those_that_err(opponent: str) -> None:
    found = returns(opponent, AGENT.expert)
    assert min(found) >= 0
    assert (max(found) > 0) == (opponent != "expert")


def test_each_game_draws_one_of_several_opponents() -> None:
    def first(board: str) -> int:
        return free(board)[0]

    of_both = sum(returns("expert+first", first))
    assert sum(returns("expert", first)) < of_both < sum(returns("first", first))


Fields = Callable[[str, str], Sequence[int]]


def test_either_begins_and_a_seed_repeats_a_game() -> None:
    env = TicTacToe("random")
    begun = [env.reset(seed=seed)[0] for seed in range(GAMES)]
    assert 0.35 < begun.count(START) / GAMES < 0.65
    assert {9 - len(free(board)) for board in begun} == {0, 1}
    assert begun == [env.reset(seed=seed)[0] for seed in range(GAMES)]


@pytest.mark.parametrize(
    ("board", "action", "reward", "is_over"),
    [
        ("XX.OO....", 2, 1.0, True),
        ("XX.OO....", 0, -1.0, True),
        ("XOXXOO.XO", 6, 1.0, True),
        ("XOXOOX.XO", 6, 0.0, True),
        (START, 4, 0.0, False),
    ],
)
def test_a_step_is_rewarded_by_how_the_game_ends(
    board: str, action: int, reward: float, is_over: bool
) -> None:
    env = TicTacToe("random")
    env.reset(seed=0)
    env.board = board
    _, earned, ended, truncated, info = env.step(action)
    assert (earned, ended, truncated) == (reward, is_over, False)
    assert info.get("invalid_action", False) == (board[action] != ".")
    assert info["action_mask"].sum() == len(free(env.board))


def test_a_game_against_a_policy_asks_for_both_and_shows_each_the_board_with_its_own_mark() -> None:
    env = TicTacToe("policy")
    begun = {bool(env.reset(seed=seed)[1]["opponent_moves"]) for seed in range(20)}
    assert begun == {False, True}
    env.reset(seed=next(seed for seed in range(20) if env.reset(seed=seed)[1]["opponent_moves"]))
    seen = [env.step(field) for field in (4, 0, 5, 1)]
    assert [board for board, *_ in seen] == ["....O....", "O...X....", "X...OO...", "OO..XX..."]
    assert [info["opponent_moves"] for *_, info in seen] == [False, True, False, True]
    _, reward, is_over, _, _ = env.step(3)
    assert (reward, is_over) == (-1.0, True), (
        "the other one has its line: the reward is the policy's"
    )
    # Whoever takes a taken field loses.
    env.reset(seed=next(seed for seed in range(20) if env.reset(seed=seed)[1]["opponent_moves"]))
    env.step(4)
    env.step(0)
    _, reward, is_over, _, info = env.step(0)
    assert (reward, is_over, info["invalid_action"]) == (1.0, True, True)


def test_the_map_has_boards_on_which_x_moves_and_each_empty_field_is_a_move() -> None:
    found = AGENT.policy_map()
    assert found.best is not None
    for panel, (title, board) in zip(found.panels, BOARDS, strict=True):
        fields = [field for row in panel.states for field in row]
        moves = [field for field in fields if isinstance(field, Move)]
        assert [move.action for move in moves] == free(board)
        assert {move.state for move in moves} == {board}
        assert board.count(MINE) in (board.count(THEIRS), board.count(THEIRS) - 1)
        assert not winner(board)
        if title in ("win", "block"):
            assert set(found.best(board)) == {2}
