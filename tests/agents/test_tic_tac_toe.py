"""Tic-tac-toe: exact play, four opponents, who begins, what ends a game, and what is told of a board."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import pytest

from llamagym_tui.agents._tic_tac_toe_env import TicTacToe
from llamagym_tui.agents.tic_tac_toe import (
    MINE,
    OPPONENTS,
    OTHER,
    START,
    THEIRS,
    TicTacToeAgent,
    best,
    expert_field,
    free,
    marked,
    value,
    winner,
)
from llamagym_tui.game.environment import agent_env
from llamagym_tui.setup import catalog

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


Fields = Callable[[str, str], Sequence[int]]


@cache
def earned(board: str, mark: str, mine: Fields, theirs: Fields) -> float:
    """What `mine` earns on a board on which a mark is to move, both drawing among the fields that they name."""
    if has_line := winner(board):
        return 1.0 if has_line == MINE else -1.0
    if not free(board):
        return 0.0
    fields = (mine if mark == MINE else theirs)(board, mark)
    after = [earned(marked(board, each, mark), OTHER[mark], mine, theirs) for each in fields]
    return sum(after) / len(after)


def test_baselines_are_exact() -> None:
    players: dict[str, Fields] = {
        "random": OPPONENTS["random"],
        "expert": lambda board, mark: (expert_field(board),),
    }
    names = AGENT.env_kwargs["opponent"].split("+")
    for name, mine in players.items():
        means = [
            (
                earned(START, MINE, mine, OPPONENTS[each])
                + earned(START, THEIRS, mine, OPPONENTS[each])
            )
            / 2
            for each in names
        ]
        assert AGENT.baselines[name] == pytest.approx(sum(means) / len(means), abs=1e-4), means


def test_an_expert_draws_among_what_is_equally_good_and_the_first_field_is_always_the_same() -> (
    None
):
    def replies(opponent: str) -> set[str]:
        env = TicTacToe(opponent)  # type: ignore[arg-type]
        found = set()
        for seed in range(60):
            board, _ = env.reset(seed=seed)
            if board == START:
                found.add(env.step(4)[0])
        return found

    assert len(replies("expert")) == 4, "each corner, in reply to the center"
    assert len(replies("random")) == 8
    assert len(replies("first")) == 1


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


def test_a_loss_comes_with_the_step_before_the_opponents_line() -> None:
    env = TicTacToe("expert")
    env.reset(seed=0)
    env.board = "OO.X....X"
    board, reward, is_over, _, _ = env.step(6)
    assert (board, reward, is_over) == ("OOOX..X.X", -1.0, True)


def test_a_board_is_told_with_the_numbers_of_its_empty_fields() -> None:
    assert AGENT.format_observation("X.O.X....") == "X 1 O\n3 X 5\n6 7 8"
    for marks in product("XO.", repeat=2):
        board = "".join(marks) + "......."
        assert AGENT.format_observation(board).count("X") == board.count("X")


def test_the_opponent_is_set_by_env_and_an_unknown_one_is_refused_by_name() -> None:
    agent = catalog.find_agent("tic_tac_toe", {"opponent": "expert"})()
    assert agent.env_kwargs == {"opponent": "expert"}
    agent_env(agent).close()
    with pytest.raises(ValueError, match="opponent is one of random, careful, expert, first, not"):
        TicTacToe("me")


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


def test_a_game_draws_among_several_opponents_by_its_seed() -> None:
    env = TicTacToe("first+policy")
    asked = []
    for seed in range(40):
        _, info = env.reset(seed=seed)
        asked.append(env.step(4)[4]["opponent_moves"] or info["opponent_moves"])
    assert 10 < sum(map(bool, asked)) < 30


def test_the_map_has_the_answers_to_each_first_move_and_all_that_are_best() -> None:
    found = AGENT.policy_map()
    openings = [state for row in found.panels[0].states for state in row]
    assert openings == [marked(START, field, THEIRS) for field in range(9)]
    assert found.best is not None
    assert set(found.best(openings[0])) == {4}
    assert not any(winner(state) for state in openings)
